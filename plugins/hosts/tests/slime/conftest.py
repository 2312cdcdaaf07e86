"""Fixtures of the plugin's tests. Those on slime's own code run where SLIME_CHECKOUT names its folder."""

from __future__ import annotations

from tests.learning.conftest import _one_thread as _one_thread
from tests.learning.conftest import base as base
from tests.learning.conftest import renderer as renderer
from tests.learning.stage.conftest import exact as exact
from tests.learning.stage.conftest import processes as processes
from tests.learning.stage.conftest import samples as samples
