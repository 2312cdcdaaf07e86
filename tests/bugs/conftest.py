"""Fixtures of the tests of the twelve bugs: a tiny model, a gateway on a real socket, a whole loop."""

from tests.gateway.conftest import gateway as gateway
from tests.gateway.conftest import model as model
from tests.gateway.conftest import renderer as renderer
from tests.journey.conftest import settings as settings
from tests.learning.conftest import _one_thread as _one_thread
