"""Pools of processes in a standby that took over: their processes and threads are gone, and nobody would say so.

Whoever waits for a result of theirs is told. An executor starts others when it has none;
a Pool has started its own when it was made, and refuses what it is asked for.
"""

import sys

ENDED = "the pool's workers ended when the interpreter was restored from a checkpoint: "
ANOTHER = ENDED + "make another one"
AGAIN = ENDED + "submit it again"


def end_pool(pool, outcome):
    """Of multiprocessing.pool: Pool and ThreadPool."""
    outcome.pools += 1
    pool._state = "TERMINATE"
    pool._terminate.cancel()  # it would wait for threads by what they don't do any more
    pool._check_running = refuse
    for result in list(pool._cache.values()):
        fail(result)


def refuse():
    raise ValueError("Pool not running: " + ANOTHER)


def fail(result):
    """Of a Pool that is no more."""
    import threading

    error = RuntimeError(ANOTHER)
    if hasattr(result, "_event"):  # AsyncResult, MapResult
        result._success, result._value = False, error
        result._event = threading.Event()
        result._event.set()
    else:  # IMapIterator: one error, and then the end
        result._cond = threading.Condition(threading.Lock())
        result._items.append((False, error))
        result._index += 1
        result._length = result._index


def renew_executor(executor, outcome):
    """Of concurrent.futures: as it was made."""
    process = sys.modules["concurrent.futures.process"]
    futures = [item.future for item in executor._pending_work_items.values()]
    outcome.pools += executor._executor_manager_thread is not None
    if not executor._shutdown_thread:
        options = {"max_tasks_per_child": executor._max_tasks_per_child} if hasattr(executor, "_max_tasks_per_child") else {}
        process.ProcessPoolExecutor.__init__(
            executor, executor._max_workers, executor._mp_context, executor._initializer, executor._initargs, **options
        )
    for future in futures:
        break_future(future, process.BrokenProcessPool(AGAIN))


def break_future(future, error):
    import threading

    future._condition = threading.Condition()  # a thread that is gone may hold the old one
    if not future.done():
        future.set_exception(error)


REPAIRS = {
    ("multiprocessing.pool", "Pool"): end_pool,
    ("concurrent.futures.process", "ProcessPoolExecutor"): renew_executor,
}
