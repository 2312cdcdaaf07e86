"""Several clients at once: isolation and locks."""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from pathlib import Path

import psycopg
import pytest

from afterwit.binding.request import ClientSession, read_request
from afterwit.errors import AlreadyRunning, StoreConflict, StoreError, StoreUnavailable, TurnNotFound
from afterwit.gateway.prepare import bind_request, store_turn
from afterwit.lifecycle import Reason, State
from afterwit.store import AsyncStore, Store
from afterwit.store.postgresql import PostgresqlStore, number_of
from afterwit.store.sqlite import SURVIVES_A_KILL, SqliteDatabase, SqliteStore, connect
from afterwit.turn import Conversation, Kind, Message
from tests.store.contract.test_lessons import practised
from tests.store.examples import HINTED, NO, PRAISED, THANKS, a_turn, a_version, add, add_judged
from tests.store.places import MODEL
from tests.store.postgresql.server import server


def name_of(url: str) -> str:
    """The schema's."""
    return url.rpartition("search_path%3D")[2]


Open = Callable[[], PostgresqlStore]


@pytest.fixture
def another(url: str) -> Iterator[Open]:
    """Opens one more client."""
    with ExitStack() as stack:
        yield lambda: stack.enter_context(closing(PostgresqlStore.open(url, fingerprint=MODEL)))


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as pool:
        yield pool


def waits(url: str, clients: int = 1) -> None:
    """Return once `clients` clients wait for a lock."""
    with psycopg.connect(url, autocommit=True) as connection:
        count = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
        while connection.execute(count).fetchall()[0][0] < clients:
            time.sleep(0.01)


def test_a_reader_of_pages_never_passes_a_turn_that_is_stored_later(
    url: str, store: PostgresqlStore, another: Open, threads: ThreadPoolExecutor
) -> None:
    """The other's turn has the smaller number, and is committed last."""
    other, reader = another(), another()
    with other.transaction():
        add(other, "early")
        add(store, "late")
        page = threads.submit(lambda: [record.turn.id for record in reader.turns()])
        waits(url)
        assert not page.done()
    assert page.result() == ["early", "late"]


def test_a_commit_of_a_version_waits_for_what_is_being_written(
    url: str, store: PostgresqlStore, another: Open, threads: ThreadPoolExecutor
) -> None:
    other = another()
    add_judged(store, "a")
    with store.transaction():
        store.answer("a", THANKS, answered_by=None, now=1.0)
        committed = threads.submit(other.commit_version, a_version(1, ["a"], parent=None), now=1.0)
        waits(url)
    committed.result()
    assert store.turn("a").state is State.TRAINED


def test_two_answers_at_once_both_count(
    url: str, store: PostgresqlStore, another: Open, threads: ThreadPoolExecutor
) -> None:
    other = another()
    add(store, "a")
    with store.transaction():
        store.answer("a", NO, answered_by=None, now=0.0)
        second = threads.submit(other.answer, "a", THANKS, answered_by=None, now=1.0)
        waits(url)
    second.result()
    record = store.turn("a")
    assert (record.revision, record.next_state.messages if record.next_state else None) == (2, THANKS)


def test_a_verdict_that_crosses_a_newer_answer_comes_too_late(
    url: str, store: PostgresqlStore, another: Open, threads: ThreadPoolExecutor
) -> None:
    judge = another()
    add(store, "a")
    store.answer("a", NO, answered_by=None, now=0.0)
    judge.claim("judge", owner="judge", limit=1, lease_s=60, now=0.0)
    with store.transaction():
        store.answer("a", THANKS, answered_by=None, now=1.0)
        verdict = threads.submit(
            judge.judged, "a", HINTED, rl=True, opd=True, reason=None, owner="judge", now=1.0
        )
        waits(url)
    assert verdict.result() is False
    assert store.turn("a").state is State.ANSWERED


def test_a_claim_passes_by_what_another_is_claiming(store: PostgresqlStore, another: Open) -> None:
    other = another()
    for name in "abcd":
        add(store, name)
        store.answer(name, NO, answered_by=None, now=0.0)
    with store.transaction():
        first = store.claim("judge", owner="one", limit=2, lease_s=60, now=0.0)
        second = other.claim("judge", owner="two", limit=4, lease_s=60, now=0.0)
    assert [[r.turn.id for r in claimed] for claimed in (first, second)] == [["a", "b"], ["c", "d"]]


def test_a_turn_that_is_stored_while_its_parent_is_pruned_is_read_back_whole(
    url: str, store: PostgresqlStore, another: Open, threads: ThreadPoolExecutor
) -> None:
    other = another()
    long = Conversation(messages=(Message(role="user", content="x" * 5000),))
    longer = Conversation(messages=(*long.messages, Message(role="user", content="y")))
    add(store, "parent", conversation=long, reason=Reason.SIDE_TURN)
    with store.transaction():
        child = add(store, "child", conversation=longer, parent="parent", now=99.0)
        pruned = threads.submit(other.prune, now=100.0, max_age_s=50.0, max_bytes=None)
        waits(url)
    assert pruned.result() == 1
    assert store.turn("child").turn == child


def request(name: str, conversation: Conversation) -> tuple[Callable[[Store], None], str]:
    incoming = read_request(
        turn=name, scope="key/agent", conversation=conversation, client=ClientSession(), streamed=True
    )

    def serve(store: Store) -> None:
        bound = bind_request(store, incoming, teaches=True, now=1.0)
        turn = a_turn(
            name,
            session=bound.binding.session,
            parent=bound.binding.parent,
            kind=bound.kind,
            conversation=conversation,
            message=Message(role="assistant", content=f"I am {name}"),
        )
        store_turn(store, bound, turn, own=(name,), now=1.0)

    return serve, name


def test_gateways_that_bind_branches_of_a_turn_at_once_agree_on_their_kinds(
    store: PostgresqlStore, another: Open, threads: ThreadPoolExecutor
) -> None:
    """Of several answers to one turn none is known to be the one that the person sees."""
    begun = Conversation(messages=(Message(role="user", content="Hello"),))
    serve, root = request("root", begun)
    serve(store)
    said = (*begun.messages, Message(role="assistant", content=f"I am {root}"))
    branches = [
        request(f"b{n}", Conversation(messages=(*said, Message(role="user", content=f"Question {n}"))))
        for n in range(6)
    ]
    together = threading.Barrier(len(branches))

    def gateway(serve: Callable[[Store], None], opened: Store) -> None:
        together.wait()
        serve(opened)

    served: list[Future[None]] = [threads.submit(gateway, serve, another()) for serve, _ in branches]
    for each in served:
        each.result()
    kinds = [store.turn(name).turn.kind for _, name in branches]
    assert kinds.count(Kind.MAIN) <= 1
    assert all(store.turn(name).turn.parent == "root" for _, name in branches)


async def test_calls_that_cross_another_process_are_made_again(url: str, store: PostgresqlStore) -> None:
    """Two gateways whose calls hold the same names in opposite orders."""
    gateways = [AsyncStore(PostgresqlStore.open(url, fingerprint=MODEL)) for _ in range(2)]

    def bind(scope: str, name: str) -> Callable[[Store], None]:
        def work(store: Store) -> None:
            with store.binding(scope):
                add(store, name, scope=scope)

        return work

    calls = [
        gateway.call(bind(f"scope{number}", f"g{which}n{place}"))
        for which, gateway in enumerate(gateways)
        for place, number in enumerate(list(range(20)) if which else list(reversed(range(20))))
    ]
    await asyncio.gather(*calls)
    for gateway in gateways:
        await gateway.close()
    assert store.counts().states == {State.OPEN: 40}


async def test_an_order_among_other_calls_is_carried_out_by_itself(url: str) -> None:
    gateway = AsyncStore(PostgresqlStore.open(url, fingerprint=MODEL))
    calls = [gateway.call(lambda s, n=n: add(s, f"t{n}") and None) for n in range(10)]
    await asyncio.gather(*calls, gateway.call(lambda s: s.exclude("s0", now=0.0) and None))
    assert await gateway.call(lambda s: s.excluded()) == {"s0"}
    await gateway.close()


def test_an_order_among_calls_of_others_is_refused_with_them(store: PostgresqlStore) -> None:
    def both() -> None:
        with store.together():
            add(store, "a")
            store.exclude("s", now=0.0)

    with pytest.raises(StoreConflict):
        both()
    assert store.excluded() == frozenset()
    assert store.counts().states == {}


def test_two_clients_that_wait_for_each_other_are_told_so(
    url: str, store: PostgresqlStore, another: Open, threads: ThreadPoolExecutor
) -> None:
    other = another()
    for name in "ab":
        add(store, name)

    def answer(client: Store, first: str, second: str, ready: threading.Barrier) -> None:
        with client.transaction():
            client.answer(first, NO, answered_by=None, now=0.0)
            ready.wait()
            client.answer(second, NO, answered_by=None, now=0.0)

    ready = threading.Barrier(2)
    both = [threads.submit(answer, store, "a", "b", ready), threads.submit(answer, other, "b", "a", ready)]
    errors = [each.exception() for each in both]
    assert sorted(type(error) for error in errors if error) == [StoreConflict]
    assert [record.state for record in store.turns()] == [State.ANSWERED] * 2


def test_a_transaction_in_which_a_statement_failed_stores_nothing(store: PostgresqlStore) -> None:
    add(store, "a")

    def both() -> None:
        with store.transaction():
            add(store, "b")
            with suppress(StoreError):
                add(store, "a")

    with pytest.raises(StoreError, match="duplicate key"):
        both()
    assert [record.turn.id for record in store.turns()] == ["a"]


def test_a_connection_that_was_lost_in_a_transaction_is_said_and_made_again(
    url: str, store: PostgresqlStore
) -> None:
    add(store, "a")

    def cut_off() -> None:
        with store.transaction():
            add(store, "b")
            server().drop_clients(name_of(url))
            add(store, "c")

    with pytest.raises(StoreUnavailable):
        cut_off()
    assert [record.turn.id for record in store.turns()] == ["a"]
    add(store, "b")
    server().drop_clients(name_of(url))
    assert store.turn("b").turn.id == "b"


def test_what_follows_a_copy_that_was_cut_off_is_stored(
    url: str, store: PostgresqlStore, tmp_path: Path
) -> None:
    class CutOff(SqliteDatabase):
        def insert_many(self, *_: object) -> None:
            server().drop_clients(name_of(url))

    add(store, "a")
    path = tmp_path / "copy.db"
    SqliteStore.open(path, fingerprint=MODEL).close()
    with closing(SqliteStore(CutOff(connect(path, SURVIVES_A_KILL), path))) as copy:
        with pytest.raises(StoreUnavailable):
            store.copy_into(copy)
    add(store, "b")
    assert [record.turn.id for record in store.turns()] == ["a", "b"]


def test_verdicts_on_one_kind_of_call_see_one_another(
    url: str, store: PostgresqlStore, another: Open, threads: ThreadPoolExecutor
) -> None:
    other = another()
    for name in "ab":
        add(store, name)
        store.answer(name, NO, answered_by=None, now=0.0)
        store.claim("judge", owner="judge", limit=1, lease_s=60, now=0.0)

    def judge(client: Store, name: str) -> int:
        with client.transaction():
            seen = sum(votes.approved for votes in client.votes_on("rm").values())
            client.judged(
                name, PRAISED, rl=True, opd=False, reason=None, owner="judge", now=1.0, signature="rm"
            )
        return seen

    with store.transaction():
        store.votes_on("rm")
        second = threads.submit(judge, other, "b")
        waits(url)
        assert judge(store, "a") == 0
    assert second.result() == 1


def test_only_one_process_learns_over_a_store(url: str, store: PostgresqlStore, another: Open) -> None:
    other = another()
    with store.leading():
        with pytest.raises(AlreadyRunning, match="another process learns over postgresql:"):
            with other.leading():
                pass
        server().drop_clients(name_of(url))
        add(store, "a")  # on a new connection, which leads again
        third = another()
        with pytest.raises(AlreadyRunning):
            with third.leading():
                pass
    with another().leading():
        pass


@pytest.mark.parametrize("scope", ["TrS02MD", "J6b00OL"])
def test_a_name_that_a_client_chose_takes_no_lock_of_another_kind(
    url: str, store: PostgresqlStore, another: Open, scope: str
) -> None:
    """The check sums of these two are 2**31 and 2**31 + 1."""
    names = (f"scope {scope}", "", "scope key/agent")
    assert all(-(2**31) <= number_of(name) < 0 for name in names)
    with store.leading(), another().binding(scope), store.binding("key/agent"):
        store.counts()


def test_a_learner_that_was_cut_off_and_replaced_stores_nothing_more(
    url: str, store: PostgresqlStore, another: Open
) -> None:
    with store.leading():
        server().drop_clients(name_of(url))
        with another().leading():
            for _ in range(2):
                with pytest.raises(
                    StoreUnavailable, match="the learner was cut off, and another process learns"
                ):
                    add(store, "a")
        add(store, "b")
    assert [record.turn.id for record in store.turns()] == ["b"]


def test_who_listens_hears_of_answers_in_other_processes_and_after_the_server_was_away(
    url: str, store: PostgresqlStore, another: Open
) -> None:
    heard: queue.SimpleQueue[None] = queue.SimpleQueue()
    add(store, "a")
    with another().listening(lambda: heard.put(None)):
        heard.get()  # it begins to listen
        with store.transaction():
            store.answer("a", NO, answered_by=None, now=0.0)
            store.set_status("judge", True, "", now=0.0)
            assert heard.empty()
        heard.get()
        server().drop_clients(name_of(url))
        heard.get()  # it listens again
        store.answer("a", THANKS, answered_by=None, now=1.0)  # it waits already: no news
        add(store, "b")
        store.answer("b", NO, answered_by=None, now=1.0)
        heard.get()
    assert heard.empty()


def test_alike_corrections_that_two_judges_commit_at_once_are_one_lesson(
    url: str, store: PostgresqlStore, another: Open, threads: ThreadPoolExecutor
) -> None:
    other = another()
    for name in "ab":
        add_judged(store, name, session=name)
    with store.transaction():
        first = store.teach(store.turn("a").sampled_turn, "Keep the answer short.", now=1.0)
        turn = other.turn("b").sampled_turn
        second = threads.submit(other.teach, turn, "Please keep your answers short!", now=2.0)
        waits(url)
    assert second.result() == first
    assert [said.turn for said in store.lesson(first).corrections] == ["a", "b"]


def test_of_two_processes_that_practise_a_lesson_at_once_one_stores_its_answers(
    url: str, store: PostgresqlStore, another: Open, threads: ThreadPoolExecutor
) -> None:
    other = another()
    add_judged(store, "a")
    number = store.teach(store.turn("a").sampled_turn, "Keep the answer short.", now=1.0)

    def practise(client: Store, id: str) -> bool:
        return practised(client, seen, (id, "a"))

    seen = store.lesson(number)
    with store.transaction():
        assert practise(store, "p1")
        second = threads.submit(practise, other, "p2")
        waits(url)
    assert not second.result()
    assert [each.turn for each in store.lesson(number).answers] == ["p1"]
    with pytest.raises(TurnNotFound):
        store.turn("p2")
