"""Jobs: a script in several processes has what one process has, bit for bit, and what fails in one fails in all."""

import json
import os
import shutil
import subprocess
import sys
import textwrap

import pytest
from conftest import GOLDEN

import cleave
from cleave import errors

LAUNCHERS = {"openmpi": ["--oversubscribe", "--bind-to", "none"], "mpich": []}
FOUND = [name for name in LAUNCHERS if shutil.which(f"mpirun.{name}")]

SCRIPT = """
import hashlib, json, sys
import numpy as np
import cleave

def digest(array):
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()

def results(job):
    g = cleave.Graph("model=5")
    x = g.input("x", (4, 7))
    w = g.parameter("w", (7, 6), layout=(None, "model"))
    g.output("y", cleave.relu(x @ w))
    program = cleave.compile(g)
    with cleave.Session("model=5", seed=3, job=job) as session:
        y = session.run(program, x=np.arange(28, dtype=np.float32).reshape(4, 7))["y"]
        session["w"] = session["w"] * 2
        found = {"y": digest(y), "w": digest(session["w"])}
    with cleave.load(sys.argv[1], tp=4, job=job) as model:
        found["logits"] = digest(model.logits([1, 2, 3]))
    return found

if len(sys.argv) > 2:
    print(json.dumps(results(None)))
else:
    with cleave.Job() as job:
        assert job.processes == 3 and 0 <= job.process < 3
        found = results(job)
        job.agree()
        if job.process == 0:
            print(json.dumps({**found, "job": repr(job)}))
"""

FAILS = """
import sys
import cleave

with cleave.Job() as job:
    try:
        job.agree("there is no disk" if job.process == 1 else None)
        assert job.process == 1
    except cleave.errors.PeerError as error:
        assert str(error) == "process 1 of 3: there is no disk", str(error)
    try:
        cleave.Session("x=3", job=job, device="nothing" if job.process == 2 else None)
        raise SystemExit("a session that one process cannot make")
    except ValueError as error:
        assert "there is no device 'nothing'" in str(error), str(error)
    if job.process == 0:
        print("heard")
"""


def launched(launcher, script, tmp_path, *arguments):
    path = tmp_path / "script.py"
    path.write_text(textwrap.dedent(script))
    command = [f"mpirun.{launcher}", *LAUNCHERS[launcher], "-np", "3", sys.executable, str(path), *arguments]
    root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    return subprocess.run(command, env={**os.environ, **root}, capture_output=True, text=True, timeout=120)


@pytest.mark.skipif(not FOUND, reason="no MPI's launcher is here")
@pytest.mark.parametrize("launcher", FOUND)
def test_same_as_one_process(launcher, tmp_path):
    script = tmp_path / "alone.py"
    script.write_text(SCRIPT)
    alone = subprocess.run(
        [sys.executable, str(script), str(GOLDEN / "llama"), "alone"], check=True, capture_output=True, text=True
    )
    done = launched(launcher, SCRIPT, tmp_path, str(GOLDEN / "llama"))
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found.pop("job") == "<cleave.Job, process 0 of 3>"
    assert found == json.loads(alone.stdout)


@pytest.mark.skipif(not FOUND, reason="no MPI's launcher is here")
@pytest.mark.parametrize("launcher", FOUND)
def test_what_fails_in_one_fails_in_all(launcher, tmp_path):
    done = launched(launcher, FAILS, tmp_path)
    assert (done.returncode, done.stdout) == (0, "heard\n"), done.stderr
    script = "import cleave\nwith cleave.Job() as job:\n    assert job.process != 1, 'one alone'\n    job.agree()\n"
    done = launched(launcher, script, tmp_path)
    assert done.returncode != 0 and "one alone" in done.stderr


def test_refused():
    with pytest.raises(errors.NotFoundError, match="no MPI launcher"):
        cleave.Job()
    with pytest.raises(errors.InvalidError, match="valid: openmpi, mpich"):
        cleave.Job(mpi="smoke")
    for wrong in (3, "job"):
        with pytest.raises(TypeError, match=r"job is a cleave\.Job"):
            cleave.Session("x=2", job=wrong)
        with pytest.raises(TypeError, match=r"job is a cleave\.Job"):
            cleave.load(GOLDEN / "llama", job=wrong)
    for seconds in (0, -1, float("nan")):
        with pytest.raises(ValueError, match="timeout"):
            cleave.Job(timeout=seconds)
