"""The tiny model of the learner's tests."""

from tests.learner.conftest import _one_thread as _one_thread
from tests.learner.conftest import base as base
from tests.learner.conftest import renderer as renderer
from tests.stages.learn.conftest import place as place
from tests.stages.learn.conftest import processes as processes
from tests.stages.learn.conftest import samples as samples
