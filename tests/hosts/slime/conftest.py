"""What the tests of the plugin share. Those on slime's own code run where SLIME_CHECKOUT names its folder."""

from __future__ import annotations

from tests.learner.conftest import _one_thread as _one_thread
from tests.learner.conftest import base as base
from tests.learner.conftest import renderer as renderer
from tests.stages.learn.conftest import exact as exact
from tests.stages.learn.conftest import processes as processes
from tests.stages.learn.conftest import samples as samples
