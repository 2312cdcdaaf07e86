"""Binding: which session a request belongs to, which turn it follows, and that turn's next state.

In the order in which a request passes them:

client_ids    the client's own ids, if it sends any
client_text   text that clients add to what was said
segments      a conversation in a form for comparing
request       the incoming request, read once; next states
parents       the stored turns that it follows, repeats, rejects or quotes
retelling     a known conversation inside one message
side_turns    requests beside the conversation
bind          all of that in one decision
siblings      which of a parent's children is the conversation
"""

from afterwit.core.binding.bind import Binding, bind
from afterwit.core.binding.client_ids import ClientSession, client_session_of
from afterwit.core.binding.client_text import without_client_text
from afterwit.core.binding.parents import Candidate, continued_sessions, with_replies
from afterwit.core.binding.request import IncomingRequest, added_messages, read_request
from afterwit.core.binding.retelling import Recent, carrying
from afterwit.core.binding.segments import plain_text
from afterwit.core.binding.siblings import Branch, Resolution, resolve
from afterwit.core.binding.side_turns import Shape

__all__ = [
    "Binding",
    "Branch",
    "Candidate",
    "ClientSession",
    "IncomingRequest",
    "Recent",
    "Resolution",
    "Shape",
    "added_messages",
    "bind",
    "carrying",
    "client_session_of",
    "continued_sessions",
    "plain_text",
    "read_request",
    "resolve",
    "with_replies",
    "without_client_text",
]
