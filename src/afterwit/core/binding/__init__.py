"""Binding: which session a request belongs to, which turn it follows, and that turn's next state.

In the order in which a request passes them:

client_ids    the client's own ids, if it sends any
client_text   text that clients add to what was said
segments      a conversation in a form for comparing
read_message  what a message alone decides
request       the incoming request, read once
silence       what follows a reply without visible text
next_state    which of its messages answer a turn
renamed_calls calls under ids that a client gave them
parents       the stored turns that it follows, repeats, rejects or quotes
summaries     messages that stand in the place of a compacted conversation
retelling     a known conversation inside one message, or continued without its beginning
side_turns    requests beside the conversation
errands       small requests about a conversation
bind          all of that in one decision
siblings      which of a parent's children is the conversation
"""

from afterwit.core.binding.bind import Binding, bind
from afterwit.core.binding.client_ids import ClientSession, client_session_of
from afterwit.core.binding.client_text import without_client_text
from afterwit.core.binding.errands import errand_of, errands_of, may_be_errand, may_have_errands
from afterwit.core.binding.next_state import added_messages
from afterwit.core.binding.parents import LONG_REPLY, Candidate, continued_sessions, with_replies
from afterwit.core.binding.read_message import message_text, reply_segments
from afterwit.core.binding.request import IncomingRequest, read_request
from afterwit.core.binding.retelling import LONGEST, Recent, resumed
from afterwit.core.binding.segments import plain_text
from afterwit.core.binding.siblings import Branch, Resolution, resolve
from afterwit.core.binding.side_turns import Shape
from afterwit.core.binding.summaries import with_summaries_told

__all__ = [
    "LONGEST",
    "LONG_REPLY",
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
    "client_session_of",
    "continued_sessions",
    "errand_of",
    "errands_of",
    "may_be_errand",
    "may_have_errands",
    "message_text",
    "plain_text",
    "read_request",
    "reply_segments",
    "resolve",
    "resumed",
    "with_replies",
    "with_summaries_told",
    "without_client_text",
]
