"""The judge stage: claims an answered turn, asks the judge, commits the verdict.

stage          the loop
verdicts       a turn's verdict from the judge's answers
claims         the turns that this worker holds in the store
settings       who judges, and how votes are counted
client         who answers: `http_judge` an endpoint, `engine_judge` the engine that serves
ability        whether the judge can judge, found out before the first turn; replies read where it cannot
recent_votes   whether the judge's votes can be read
"""

from afterwit.stages.judge.client import JudgeClient
from afterwit.stages.judge.settings import JudgeSettings

__all__ = ["JudgeClient", "JudgeSettings"]
