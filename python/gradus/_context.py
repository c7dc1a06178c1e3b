"""Contexts: the memory of a device and what belongs to it; a current one for each thread, a lock for each, what is to be given back to it.

Threads. Each thread has a current context, in which tensors are created: the default one until it says `with gd.Context(…):`. An op works
in the context of its operands. A context is used by one thread at a time: a call holds its lock. Long calls (a compiled step, a gradient)
let go of the GIL, and threads that use other contexts compute meanwhile.

Ownership. A Python object owns one reference of the library. When it goes, its handle is put on a list, which a later call gives back: a
finalizer may run on any thread and at any time. The library has such lists for tensors (gd_release_later).
"""
from __future__ import annotations

import os
import sys
import threading
from collections import deque

from . import _api, _lib
from ._lib import C, fast, thread

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

    from ._tensor import Tensor


# ---- locks

held: list = []  # not empty: a thread holds a lock


class _Lock:
    """An RLock that others see to be held. Where nobody holds any, a single call of C that keeps the GIL needs none."""

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        self._lock = threading.RLock()

    def acquire(self) -> bool:
        self._lock.acquire()
        held.append(self)
        return True

    def try_acquire(self) -> bool:
        """Without waiting: whether it is held now."""
        if not self._lock.acquire(False):
            return False
        held.append(self)
        return True

    def release(self) -> None:
        self._lock.release()  # RuntimeError: it is not this thread's
        held.pop()

    __enter__ = acquire

    def __exit__(self, *what: Any) -> None:
        self._lock.release()
        held.pop()

    def _at_fork_reinit(self) -> None:
        self._lock._at_fork_reinit()  # type: ignore[attr-defined]
        held[:] = _always


# Always held: the locks of the extension, which are not seen here; and before Python 3.11, which lets another thread run between two of
# any instructions, and without a GIL, nobody may look first and call then.
_always = [] if fast is None and sys.version_info >= (3, 11) and getattr(sys, "_is_gil_enabled", lambda: True)() else [fast]
held += _always


# ---- homes: the contexts of the library

class Home:
    """A context of the library, as the package has it."""

    __slots__ = ("handle", "lock", "waiting", "no_grad_depth", "users", "initial")

    def __init__(self, handle: int | None) -> None:
        self.handle: int | None = handle
        self.lock: Any = _Lock() if fast is None else fast.Lock(handle or 0)
        self.waiting: list[Any] = []  # to be given back by whoever holds the lock next: as in _pending
        self.no_grad_depth: int = 0
        self.users: int = 0  # objects gd.Context
        self.initial: Any = None  # the stream of initial values: nn/_module.py


_nowhere = Home(None)  # for functions that need no context, before there is one
_homes: dict[int, Home] = {}
_of_devices: dict[str, Home] = {}  # those that stand for a device: gd.ones(3).to("cpu")
of_objects: dict[int, Home] = {}  # by the handles of objects that are no tensors
_opening = threading.RLock()
_ended: list[Home] = []  # of which no gd.Context is left
only: Home | None = None  # where there is but one


def _open(device: str, **options: Any) -> Home:
    global only
    from . import _ops
    with _opening:
        _close_ended()
        opened = Home(_ops.open(device, **options))
        C.gd_scope_begin(opened.handle)  # what gd_claim empties
        _homes[opened.handle] = opened
        only = opened if len(_homes) == 1 else None
    return opened


def of_device(name: str) -> Home:
    """The context that stands for a device, opened at first use. It is never closed: the process gives its memory back."""
    found = _of_devices.get(name)
    if found is None:
        with _opening:
            found = _of_devices.get(name)
            if found is None:
                found = _open(name)
                found = _of_devices.setdefault(C.gd_context_device(found.handle).decode(), found)  # "opencl" is "opencl:0"
                _of_devices[name] = found
                if name == "cpu" and fast is not None:
                    fast.set_default(found.lock)
    return found


def home() -> Home:
    """This thread's current one."""
    return thread.home or _of_devices.get("cpu") or of_device("cpu")


def current() -> int:
    """The handle of this thread's current context."""
    return home().handle


def home_of(h: int | None) -> Home:
    """That of a tensor's handle."""
    return only or _homes.get(C.gd_tensor_context(h)) or home()


def home_for(function: Any, arguments: Any) -> Home:
    """That which a function of the library works in: its operands'; the current one where it has none."""
    if only is not None:
        return only
    places = _api.OWNERS.get(function.__name__, "")
    for kind, place in zip(places[::2], places[1::2]):
        value = arguments[int(place, 36)]
        if kind == "a" and value is not None:
            value = next((h for h in value if h), None)
        if not value:
            continue
        found = _homes.get(value) if kind == "c" else of_objects.get(value) if kind == "o" else _homes.get(C.gd_tensor_context(value))
        if found is not None:
            return found
    return home() if places else _nowhere


def enter(place: Home | None) -> Home | None:
    """Make it this thread's current one; the one before."""
    before, thread.home = thread.home, place
    if fast is not None:
        fast.set_context(None if place is None else place.lock)
    return before


class within:
    """With the lock of a home, which is this thread's current one meanwhile; what has been let go of it is given back first."""

    __slots__ = ("home", "before")

    def __init__(self, home: Home) -> None:
        self.home = home

    def __enter__(self) -> Home:
        self.home.lock.acquire()
        self.before = enter(self.home)
        if _pending or self.home.waiting:
            drain(self.home)
        return self.home

    def __exit__(self, *what: Any) -> None:
        enter(self.before)
        self.home.lock.release()


if hasattr(os, "register_at_fork"):
    def _in_child() -> None:  # the threads that held them are not there
        for one in (*_homes.values(), _nowhere):
            one.lock._at_fork_reinit()
    os.register_at_fork(after_in_child=_in_child)


# ---- what is given back

# (level, function, handle and, kept until then, what it was made from, home) of objects that Python has let go.
_pending: deque = deque()
forget = _pending.append
FIRST = 1 << 30  # the level of what ends before all others


def _level(item: tuple) -> int:
    return item[0]


def drain(place: Home) -> None:
    """Give back what Python has let go of a context, whose lock is held; of others, where nobody holds theirs, else who holds it does so.
    Python's collector ends the objects of a cycle in any order: what was made from others is ended before them."""
    while _pending or place.waiting:
        others = _sorted_by_context()
        _give_back(place)  # releasing an object may list the ones it was made from
        for other in others - {place}:
            if other.lock.try_acquire():
                try:
                    _give_back(other)
                finally:
                    other.lock.release()
    if _ended:
        _close_ended()


def _sorted_by_context() -> set[Home]:
    """Empty the list; the contexts that have got something."""
    found = set()
    while _pending:
        item = _pending.popleft()
        item[4].waiting.append(item)
        found.add(item[4])
    return found


def _drain_handle(handle: int) -> None:
    drain(_homes.get(handle, _nowhere))


def _give_back(place: Home) -> None:
    objects, place.waiting = place.waiting, []
    objects.sort(key=_level, reverse=True)
    for item in objects:
        of_objects.pop(item[2], None)
        item[1](item[2])


def _close_ended() -> None:
    """Close the contexts that nobody has any more, if nothing of them is left."""
    global only
    for one in list(_ended):
        if one.users or one.handle not in _homes:
            _ended.remove(one)
        elif one.lock.try_acquire():
            try:
                one.initial = None
                _sorted_by_context()
                _give_back(one)
                if C.gd_close_if_unused(one.handle):
                    del _homes[one.handle]
                    _ended.remove(one)
                    only = next(iter(_homes.values())) if len(_homes) == 1 else None
            finally:
                one.lock.release()


class Object:
    """Owns a handle of an opaque type, and keeps alive what it was made from."""

    __slots__ = ("_h", "_kept", "_level", "_home", "__weakref__")  # level: above all that it was made from
    _end: str | None = None  # the name of the function that ends it
    _h: int
    _kept: tuple[Any, ...]
    _level: int
    _home: Home

    def __new__(cls, *arguments: Any, **options: Any) -> Any:
        """As create()."""
        if not hasattr(cls, "create"):
            raise TypeError(f"a {cls.__name__} is made by its other constructors")
        return cls.create(*arguments, **options)

    @classmethod
    def _made(cls, h: int, kept: tuple[Any, ...]) -> Any:
        made = object.__new__(cls)
        made._h, made._kept = h, kept
        made._level = 1 + max((one._level for one in kept if isinstance(one, Object)), default=0)
        last, thread.last = thread.last, None
        made._home = next((one._home for one in kept if isinstance(one, Object) and one._home.handle), None) or last or home()
        if h:
            of_objects[h] = made._home
        return made

    @classmethod
    def _borrowed(cls, h: int, owner: Any) -> Any:
        made = cls._made(0, (owner,))
        made._kept += (h,)
        return made

    @property
    def handle(self) -> int:
        h = self._h or (self._kept[1] if len(self._kept) == 2 and type(self._kept[1]) is int else 0)
        if not h:
            raise _lib.StateError(f"the {type(self).__name__} has been closed")
        return h

    def _forget(self) -> None:
        of_objects.pop(self._h, None)
        self._h, self._kept = 0, ()

    def close(self) -> None:
        """End it now; it cannot be used any more."""
        if self._h and self._end:
            with self._home.lock:
                getattr(C, self._end)(self._h)
        self._forget()

    def __del__(self, _forget: Any = forget, _C: Any = C) -> None:
        if self._h and self._end:  # what it was made from lives until it is ended
            _forget((self._level, getattr(_C, self._end), self._h, self._kept, self._home))

    def __repr__(self) -> str:
        return f"<gradus {type(self).__name__}>"


# ---- for users

def devices() -> list[str]:
    """The names of the devices of this machine that this build can use: "cpu", "reference", "opencl:0", …"""
    return [C.gd_device_name(i).decode() for i in range(C.gd_device_count())]


class Context:
    """A device with memory, threads and a stream of random numbers of its own: gd.Context("cpu", threads=1), gd.Context("opencl:0").

        with gd.Context(threads=1):
            step = make_step()    # what is created here, in this thread, belongs to it
            step(x)

    Within the block it is the thread's current context, in which tensors, modules and compiled functions are made. An op works in the
    context of its operands, in whichever block it is called; operands of two are an error, and t.to(context) copies.
    numbers: "exact", "library", "tf32" or "fast", of products and convolutions: the last on "cpu", too (docs/devices.md).
    Threads that use different contexts compute at the same time. It is closed when it and all that was made of it have gone.
    """

    __slots__ = ("_home",)

    def __init__(self, device: str = "cpu", *, threads: int | None = None, seed: int = 0, memory_limit: int | None = None,
                 numbers: str | None = None) -> None:
        given = (("threads", threads), ("memory_limit", memory_limit), ("numbers", numbers))
        options = {name: value for name, value in given if value is not None}
        self._take(_open(device, seed=seed, **options))

    def _take(self, place: Home) -> None:
        self._home = place
        place.users += 1

    @classmethod
    def _of(cls, place: Home) -> Context:
        made = object.__new__(cls)
        made._take(place)
        return made

    def __del__(self, _listed: Any = _ended.append) -> None:
        try:
            place = self._home
        except AttributeError:  # it could not be opened
            return
        place.users -= 1
        if not place.users and place not in _of_devices.values():
            _listed(place)

    def __enter__(self) -> Context:
        thread.entered = enter(self._home), thread.entered  # several threads may be in one context's block
        return self

    def __exit__(self, *what: Any) -> None:
        before, thread.entered = thread.entered
        enter(before)

    @property
    def device(self) -> str:
        """The device's name."""
        return C.gd_context_device(self._home.handle).decode()

    @property
    def isa(self) -> str:
        """The instruction set in use."""
        return C.gd_context_isa(self._home.handle).decode()

    @property
    def extensions(self) -> str:
        """The instruction set's extensions in use, "amx_bf16+avx512_vnni"; "": none."""
        return C.gd_context_extensions(self._home.handle).decode()

    @property
    def threads(self) -> int:
        """How many threads compute."""
        return C.gd_context_threads(self._home.handle)

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, Context) and self._home is other._home

    def __hash__(self) -> int:
        return id(self._home)

    def __repr__(self) -> str:
        return f"<gradus Context {self.device!r}, {self.threads} thread{'' if self.threads == 1 else 's'}>"


def is_place(where: Any) -> bool:
    """Whether it is a Context, or a device's name, of those that are here or not."""
    return isinstance(where, Context) or isinstance(where, str) and where.partition(":")[0] in ("cpu", "reference", "opencl", "cuda")


def place_of(where: Any) -> Home:
    """The home that a Context, or the name of a device, stands for. Of a device: the current one if it is of that device, else the one that
    stands for it."""
    if isinstance(where, Context):
        return where._home
    now = home()
    if C.gd_context_device(now.handle).decode() == where:
        return now
    return of_device(where)


def moved(t: Tensor, place: Home) -> Tensor:
    """A copy in another context; itself in its own."""
    from . import _convert
    if home_of(t._h) is place:
        return t
    if not t.is_contiguous():
        from . import _ops
        t = _ops.contiguous(t.detach())
    block, shape, code = t.tobytes(), t.shape, t.dtype.code  # through the host: at no time are two locks held
    with within(place):
        return _convert.run(C.gd_from_host, place.handle, _convert.shape_of(shape), code, block)
