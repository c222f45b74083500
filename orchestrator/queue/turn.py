"""Many callers, one call: what is asked in one turn of the event loop is sent together."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, NamedTuple, TypeVar

Asked = TypeVar("Asked")
Answer = TypeVar("Answer")

MAX_TOGETHER = 32
MAX_BYTES = 1024 * 1024


class _Caller(NamedTuple, Generic[Asked, Answer]):
    """Somebody who waits."""

    asked: Asked
    size: int
    answer: "asyncio.Future[Answer]"


class Turn(Generic[Asked, Answer]):
    """What is asked until the loop comes round, in its order.

    It goes in one call; in several, one after the other, where it is more than 32 or 1 MiB. The next turn does not wait
    for that. Each caller gets its own answer or its own error, may leave alone, and the call ends when all have left.
    Who is alone makes the call itself; only for several it is a task's.

    send: makes a call, until a deadline by the loop's clock. deadline_s: how long after the turn that is, for all.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        send: Callable[[Sequence[Asked], float], Awaitable[Sequence[Answer | Exception]]],
        deadline_s: float,
    ) -> None:
        self._loop = loop
        self._send = send
        self._deadline_s = deadline_s
        self._callers: list[_Caller[Asked, Answer]] = []
        self._is_open = True
        self._task: asyncio.Task[None] | None = None

    def is_open_on(self, loop: asyncio.AbstractEventLoop) -> bool:
        """Whether one may join."""
        return self._is_open and self._loop is loop

    async def join(self, asked: Asked, size: int) -> Answer:
        """Ask; `size` in bytes."""
        is_first = not self._callers
        answer: asyncio.Future[Answer] = self._loop.create_future()
        self._callers.append(_Caller(asked, size, answer))
        try:
            if is_first:
                await self._come_round()
                if self._task is None:
                    return await self._call_alone(asked)
            return await answer
        except asyncio.CancelledError:
            if not (answer.cancel() or answer.cancelled()):
                answer.exception()  # it came too late; nobody is to be told of it
            if self._task is not None and all(caller.answer.done() for caller in self._callers):
                self._task.cancel()
            raise

    async def _come_round(self) -> None:
        try:
            await asyncio.sleep(0)
        finally:
            self._is_open = False
            if len(self._callers) > 1:
                self._task = self._loop.create_task(self._run())
                self._task.add_done_callback(self._end)

    async def _call_alone(self, asked: Asked) -> Answer:
        (answer,) = await self._send([asked], self._loop.time() + self._deadline_s)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def _run(self) -> None:
        until = self._loop.time() + self._deadline_s
        waiting = deque(self._callers)
        while callers := _next_call(waiting):
            answers = await self._send([caller.asked for caller in callers], until)
            for caller, answer in zip(callers, answers, strict=True):
                if caller.answer.done():
                    continue
                if isinstance(answer, Exception):
                    caller.answer.set_exception(answer)
                else:
                    caller.answer.set_result(answer)

    def _end(self, task: "asyncio.Task[None]") -> None:
        """Whoever has no answer yet gets the error that ended the calls."""
        problem = None if task.cancelled() else task.exception()
        for caller in self._callers:
            if caller.answer.done():
                continue
            if problem is None:
                caller.answer.cancel()
            else:
                caller.answer.set_exception(_own(problem))


def _next_call(waiting: "deque[_Caller[Asked, Answer]]") -> "list[_Caller[Asked, Answer]]":
    callers: list[_Caller[Asked, Answer]] = []
    size = 0
    while waiting and len(callers) < MAX_TOGETHER:
        size += waiting[0].size
        if callers and size > MAX_BYTES:
            break
        caller = waiting.popleft()
        if not caller.answer.done():
            callers.append(caller)
    return callers


def _own(problem: BaseException) -> BaseException:
    """A copy: what several callers raise, each adds its own traceback to."""
    own = type(problem).__new__(type(problem), *problem.args)
    own.__dict__.update(problem.__dict__)
    own.__cause__ = problem.__cause__
    return own.with_traceback(problem.__traceback__)
