"""The renderer of a model folder that no test changes, made once: it costs a tenth of a second."""

from functools import cache

from afterwit.chat_format.render import Renderer

renderer_of = cache(Renderer.load)
