"""HTTP below the endpoints: the socket, bodies, limits, responses and disconnects."""

from afterwit.stages.gateway.http.body import parse_json, read_body
from afterwit.stages.gateway.http.connections import ConnectionLimits
from afterwit.stages.gateway.http.disconnect import until_disconnect
from afterwit.stages.gateway.http.in_flight import InFlight
from afterwit.stages.gateway.http.responses import INTERNAL, send_error, send_json
from afterwit.stages.gateway.http.server import Listener, bound_socket

__all__ = [
    "INTERNAL",
    "ConnectionLimits",
    "InFlight",
    "Listener",
    "bound_socket",
    "parse_json",
    "read_body",
    "send_error",
    "send_json",
    "until_disconnect",
]
