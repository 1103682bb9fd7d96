"""Sessions: arrays in and out, state, threads, interrupts, closing."""

import gc
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time

import numpy as np
import pytest

import cleave
from cleave import errors


def adder(mesh="model=2", dtype="f32", shape=(4, 6)):
    """w += x; outputs the new w and its double."""
    g = cleave.Graph(mesh)
    x = g.input("x", shape, dtype)
    w = g.state("w", shape, dtype, layout=("model",) + (None,) * (len(shape) - 1), init="ones")
    new = w + x
    g.assign(w, new)
    g.output("w", new)
    g.output("twice", new + new)
    return cleave.compile(g)


def test_run_and_state():
    program = adder()
    assert list(program.inputs) == ["x"] and list(program.states) == ["w"] and list(program.outputs) == ["w", "twice"]
    assert program.states["w"].shape == (4, 6) and str(program.states["w"].layout) == "model,_"
    with cleave.Session("model=2", check=True) as session:
        x = np.arange(24, dtype=np.float32).reshape(4, 6)
        np.testing.assert_array_equal(session.run(program, x=x)["w"], 1 + x)
        np.testing.assert_array_equal(session.run(program, {"x": x})["twice"], 2 + 4 * x)
        np.testing.assert_array_equal(session["w"], 1 + 2 * x)
        np.testing.assert_array_equal(session.read("w", (slice(1, 3),)), 1 + 2 * x[1:3])
        session["w"] = np.zeros((4, 6), np.float32)
        session.write("w", np.full((1, 2), 5, np.float32), (slice(3, 4), slice(2, 4)))
        assert session["w"].sum() == 10 and "w" in session and "v" not in session
        assert list(session.run(program, x=x, outputs=["twice"])) == ["twice"]
        assert session.pop_stats()["runs"] == 3 and session.rank_bytes > 0
        session.unload(program)
        session.unload(program)
        assert session["w"][0, 0] == 0


def test_arrays_are_not_copied():
    """What is contiguous is read and written in place."""
    from cleave.arrays import as_input_array, as_output_array

    x = np.ones((4, 6), np.float32)
    assert as_input_array(x, 0, (4, 6), "x") is x
    x.flags.writeable = False
    assert as_input_array(x, 0, (4, 6), "x") is x
    out = np.zeros((4, 6), np.float32)
    assert as_output_array(out, 0, (4, 6), "out")[1] is out
    with cleave.Session("model=2") as session:
        program = adder()
        result = session.run(program, x=x, out={"w": out})
        assert result["w"] is out and out[0, 0] == 2
        wide = np.zeros((4, 12), np.float32)
        session.run(program, x=np.ones((6, 4), np.float32).T, out={"w": wide[:, ::2]})
        assert wide[:, ::2].min() == 3 and wide[:, 1::2].max() == 0
        both = np.ones((4, 6), np.float32)  # read, and written
        session.run(program, x=both, out={"w": both})
        assert both.min() == both.max() == 4
        session.run(program, x=both, out={"w": both, "twice": both})


class Lender:
    """Speaks DLPack and nothing else."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **kwargs):
        return self.array.__dlpack__()

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


def test_dlpack():
    x, out = np.ones((4, 6), np.float32), np.zeros((4, 6), np.float32)
    with cleave.Session("model=2") as session:
        session.run(adder(), x=Lender(x), out={"w": Lender(out)})
        assert out.min() == out.max() == 2
        np.testing.assert_array_equal(np.from_dlpack(cleave.dlpack(out)), out)

        class Elsewhere(Lender):
            def __dlpack_device__(self):
                return 2, 0

        with pytest.raises(TypeError, match="device"):
            session.run(adder(), x=Elsewhere(x))


def test_bfloat16():
    bits = np.full((4, 6), 0x4040, np.uint16)  # 3.0
    program = adder(dtype="bf16")
    with cleave.Session("model=2") as session:
        assert (session.run(program, x=bits)["w"].view(np.uint16) == 0x4080).all()  # 4.0
        out = np.zeros((4, 6), np.uint16)
        session.run(program, x=[[1.0] * 6] * 4, out={"w": out})
        assert (out == 0x40A0).all()  # 5.0
        ml_dtypes = pytest.importorskip("ml_dtypes")
        x = np.full((4, 6), 2, ml_dtypes.bfloat16)
        assert session.run(program, x=x)["w"].dtype == ml_dtypes.bfloat16
        lent = cleave.dlpack(x)  # DLPack that says bfloat16
        with pytest.raises((BufferError, RuntimeError, TypeError)):
            np.from_dlpack(cleave.dlpack(x))
        got = session.run(program, x=lent)["w"]
        assert (got.astype(np.float32) == 9).all()


def test_arrays_refused():
    program = adder()
    with cleave.Session("model=2") as session:
        good = np.ones((4, 6), np.float32)
        refused = [
            (TypeError, "float64", np.ones((4, 6))),
            (ValueError, "shape", np.ones((6, 4), np.float32)),
            (TypeError, "object", np.full((4, 6), None)),
            (ValueError, "inhomogeneous", [[1.0], [1.0, 2.0]]),
            (TypeError, "numbers", "text"),
            (TypeError, "object", object()),
            (TypeError, ">f4", good.astype(">f4")),
        ]
        session.load(program)
        for error, match, bad in refused:
            with pytest.raises(error, match=match):
                session.run(program, x=bad)
        with pytest.raises(errors.NotFoundError, match="no input 'y'"):
            session.run(program, x=good, y=good)
        with pytest.raises(KeyError, match="'x' is not given"):
            session.run(program)
        with pytest.raises(errors.NotFoundError, match="no output"):
            session.run(program, x=good, outputs="v")
        frozen = np.ones((4, 6), np.float32)
        frozen.flags.writeable = False
        with pytest.raises(ValueError, match="cannot be written"):
            session.run(program, x=good, out={"w": frozen})
        with pytest.raises(TypeError):
            session.run(program, x=good, out={"w": [0.0] * 24})
        with pytest.raises(TypeError):
            session.run("program", x=good)
        for box in ((slice(0, 9, 2),), (3,), (slice(None),) * 3):
            with pytest.raises(ValueError):
                session.read("w", box)
        with pytest.raises(errors.NotFoundError, match="no state"):
            session.read("v")
        assert session.read("w", (slice(4, 2),)).shape == (0, 6)
        ids = cleave.Graph("model=2")
        ids.output("i", ids.input("i", (2,), "i32") + ids.zeros((2,), "i32"))
        ids = cleave.compile(ids)
        with pytest.raises(TypeError, match="fractions"):
            session.run(ids, i=[0.5, 1.0])
        with pytest.raises(OverflowError):
            session.run(ids, i=[2**31, 0])
        assert session.run(ids, i=[7, -1])["i"].tolist() == [7, -1]
    with pytest.raises(ValueError, match="closed"):
        session.run(program, x=good)
    with pytest.raises(errors.InvalidError, match="mesh"):
        cleave.Session("model=3").run(program, x=good)


def test_options_of_sessions():
    with pytest.raises(TypeError, match="valid: .*threads_per_rank"):
        cleave.Session("model=2", thread=3)
    with pytest.raises(TypeError):
        cleave.Session("model=2", source=1)
    with pytest.raises(TypeError):
        cleave.Session("model=2", seed=1.5)
    with pytest.raises((errors.CleaveError, ValueError)):
        cleave.Session("model=2", transport="carrier pigeon")
    first = [cleave.Session("model=2", seed=s, transport=t) for s, t in ((1, None), (1, "threads"), (2, None))]
    g = cleave.Graph("model=2")
    w = g.state("w", (8,), layout="model", init=("normal", 1.0))
    g.output("w", w * 1.0)
    program = cleave.compile(g)
    a, b, c = (s.run(program)["w"] for s in first)
    assert (a == b).all() and (a != c).any()


def test_not_finite_names_the_op():
    g = cleave.Graph("model=2")
    g.output("y", cleave.log(g.input("x", (4,))) + 1)
    session = cleave.Session("model=2", find_nonfinite=True)
    with pytest.raises(errors.NotFiniteError) as caught:
        session.run(cleave.compile(g), x=[1.0, 1.0, -1.0, 1.0])
    assert (
        isinstance(caught.value, ArithmeticError)
        and "map" in caught.value.op + str(caught.value)
        and caught.value.rank >= 0
    )


def test_gil_is_released():
    """Python goes on while ranks run."""
    out = in_child("""
        program, big = long(30, 1024), np.ones((1024, 1024), np.float32)
        session.load(program)
        thread = threading.Thread(target=lambda: session.run(program, x=big))
        thread.start()
        ticks = 0
        while thread.is_alive():
            time.sleep(0.001)
            ticks += 1
        print("ticked" if ticks > 20 else ticks)
    """)
    assert out == ["ticked"]


def test_threads_wait_their_turn():
    program, session = adder(), cleave.Session("model=2")
    x = np.ones((4, 6), np.float32)
    n, each, failures = 4, 25, []

    def work():
        try:
            for _ in range(each):
                session.run(program, x=x)
        except BaseException as e:
            failures.append(e)

    threads = [threading.Thread(target=work) for _ in range(n)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failures and session["w"][0, 0] == 1 + n * each


def test_lifetimes():
    """Whatever goes first, what is needed stays."""
    x = np.ones((4, 6), np.float32)
    program, session = adder(), cleave.Session("model=2")
    session.run(program, x=x)
    program.close()
    with pytest.raises(ValueError, match="closed"):
        str(program)
    del program
    gc.collect()
    other = adder()
    assert session.run(other, x=x)["w"][0, 0] == 3
    session.close()
    session.close()
    assert "closed" in repr(session)
    g = cleave.Graph("model=2")
    value = g.input("x", (2,))
    del g
    gc.collect()
    assert (value + value).shape == (2,)
    # a circle of all of them, which the collector takes apart in any order
    for _ in range(20):
        g = cleave.Graph("model=2")
        v = g.input("x", (2,))
        g.output("y", v)
        p, s = cleave.compile(g), cleave.Session("model=2")
        s.run(p, x=[1, 2])
        circle = [g, v, p, s]
        g.me = p.me = s.me = circle
        del g, v, p, s, circle
        gc.collect()


def test_close_from_another_thread_waits():
    program, session = adder(), cleave.Session("model=2")
    stop = []

    def work():
        x = np.ones((4, 6), np.float32)
        try:
            while not stop:
                session.run(program, x=x)
        except ValueError as e:
            stop.append(str(e))

    thread = threading.Thread(target=work)
    thread.start()
    time.sleep(0.05)
    session.close()
    thread.join(20)
    assert stop == ["this session is closed"]


SLOW = """
    import cleave, numpy as np, os, signal, threading, time
    def long(n, size=256):
        g = cleave.Graph("model=2")
        x = g.input("x", (size, size))
        y = x
        for _ in range(n):
            y = cleave.tanh(y @ x)
        g.output("y", y)
        return cleave.compile(g)
    session = cleave.Session("model=2")
    x = np.ones((256, 256), np.float32)
    program = long(3)
    session.run(program, x=x)
"""


def in_child(code, timeout=240):
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", textwrap.dedent(SLOW) + textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=timeout,
    )
    assert done.returncode == 0 and not done.stderr, done.stdout + done.stderr
    return done.stdout.split()


def test_what_is_left_at_exit_is_dropped_silently():
    in_child("""
        import cleave._handle
        cleave._handle.left = session
    """)


def test_interrupt_cancels_a_long_run():
    out = in_child("""
        import cleave._interruptible
        cleave._interruptible.GRACE_SECONDS = 0.05
        program = long(400, 1024)
        x = np.ones((1024, 1024), np.float32)
        session.load(program)
        threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        try:
            session.run(program, x=x)
            print("ran", end=" ")
        except KeyboardInterrupt:
            print("interrupted", end=" ")
        try:
            session.run(program, x=x)
        except cleave.errors.CancelledError:
            print("cancelled")
    """)
    assert out == ["interrupted", "cancelled"]


def test_interrupt_lets_a_short_run_end():
    out = in_child("""
        runs = 0
        threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        try:
            while True:
                session.run(program, x=x)
                runs += 1
        except KeyboardInterrupt:
            print("interrupted", runs > 0)
        print(session.run(program, x=x)["y"].shape[0])
    """)
    assert out == ["interrupted", "True", "256"]


def test_interrupts_at_any_time():
    """A signal may come between any two instructions of Python's: nothing hangs, and the session goes on."""
    out = in_child("""
        import random
        random.seed(3)
        def interrupt(*_):
            raise KeyboardInterrupt
        signal.signal(signal.SIGALRM, interrupt)
        small = cleave.Graph("model=2")
        small.output("y", small.input("x", (4,), layout="model") * 2.0)
        small = cleave.compile(small)
        caught = 0
        for i in range(150):
            try:
                try:
                    signal.setitimer(signal.ITIMER_REAL, random.random() * 0.01)
                    while True:
                        session.run(small, x=[1, 2, 3, 4])
                except KeyboardInterrupt:
                    caught += 1
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
        print(caught, session.run(small, x=[1, 2, 3, 4])["y"].tolist() == [2, 4, 6, 8])
    """)
    assert out == ["150", "True"]


def test_fork():
    out = in_child("""
        pid = os.fork()
        if pid == 0:
            try:
                session.run(program, x=x)
            except cleave.CleaveError as e:
                ok = "fork" in str(e)
            fresh = cleave.Session("model=2")
            ok = ok and fresh.run(program, x=x)["y"].shape == (256, 256)
            del session
            print("child", ok, flush=True)
            os._exit(0)
        os.waitpid(pid, 0)
        print(session.run(program, x=x)["y"].shape[0])
    """)
    assert out == ["child", "True", "256"]


def test_exit_with_everything_open():
    in_child(
        "import sys; sys.me = [session, program]; threading.Thread(target=lambda: session.run(program, x=x)).start()"
    )


def test_options_are_those_that_are_taken():
    with pytest.raises(TypeError) as refused:
        cleave.Session({}, nope=1)
    valid = str(refused.value).split("valid: ")[1].split(", ")
    some = {
        "check": True, "device": "cpu", "find_nonfinite": True, "job": None, "no_pinning": True, "seed": 1,
        "threads_per_rank": 1, "timeout": 2.5, "trace": True, "transport": "threads",
    }  # fmt: skip
    assert sorted(valid) == sorted(some)
    with cleave.Session({}, **some):
        pass
    with pytest.raises(TypeError, match="no option 'timeout_ms'; valid: .*timeout"):
        cleave.Session({}, timeout_ms=5)
    for bad in (0, -1, float("nan"), float("inf"), 1e30):
        with pytest.raises(ValueError, match="valid: seconds, more than 0"):
            cleave.Session({}, timeout=bad)
    with pytest.raises(TypeError, match="timeout is a number, not str"):
        cleave.Session({}, timeout="x")
    x = cleave.Graph({}).input("x", (1, 2, 1, 4))
    for name in ("reserved", "other"):  # what nobody sets is not offered either
        with pytest.raises(TypeError, match=f"rope has no option '{name}'; valid: (?!.*reserved)"):
            cleave.rope(x, **{name: 1})


def test_names_of_state():
    g = cleave.Graph({})
    w, v = g.parameter("w", (4,)), g.state("v", (2,))
    g.output("y", w + 1)
    g.assign(v, v * 2.0)
    with cleave.Session({}) as session:
        assert list(session) == []
        session.load(cleave.compile(g))
        assert sorted(session) == ["v", "w"]
        assert list(session) == list(session.states)
        assert "w" in session and "u" not in session
        with pytest.raises(TypeError, match=r"state 'w' cannot be removed: .*Session.unload\(\)"):
            del session["w"]
        assert "w" in session


def test_trace(tmp_path):
    """Runs meanwhile are recorded, and no others; where an exception ends it, those until then."""
    program, path = adder(), tmp_path / "trace.json"
    x = np.ones((4, 6), np.float32)
    with cleave.Session("model=2") as session:
        session.run(program, x=x)
        with session.trace(path):
            session.run(program, x=x)
            session.run(program, x=x)
        session.run(program, x=x)
        with pytest.raises(KeyError), session.trace(tmp_path / "failed.json"):
            session.run(program, x=x)
            raise KeyError
        with session.trace(path.with_name("tpu.json"), machine="tpu-v2-8"):
            pass
    found = cleave.read_trace(path)
    assert found["steps"] == 2 and found["ranks"] == 2 and found["mesh"] == "model=2" and found["seconds"] > 0
    assert [part["name"] for part in found["parts"]] == ["attention", "feed-forward", "rest"]
    assert found["parts"][2]["compute"] > 0 and found["parts"][0]["compute"] == 0
    assert found["ops"] and all(op["calls"] >= 1 and op["seconds"] >= op["waiting"] for op in found["ops"])
    assert cleave.read_trace(path.with_name("tpu.json"))["machine"] == "tpu-v2-8"
    assert cleave.read_trace(tmp_path / "failed.json")["steps"] == 1
    with pytest.raises(errors.NotFoundError):
        cleave.read_trace(tmp_path / "none.json")
