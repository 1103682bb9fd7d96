#!/usr/bin/env python3
"""Files of the project that comments of the sources name are there, and commits that pages name, by the subjects that
they give; names each that is not.
usage: scripts/check_references.py [ROOT]     ROOT: the tree to check, default this one
"""
import os
import re
import subprocess
import sys

CHECKED = re.compile(r"^(src|include|tests|examples|python|bench)/.*\.(c|h|cpp|py)$")
NOT_CHECKED = re.compile(r"^tests/golden/|^src/kernels/cpu/isa_dispatch\.h$")  # others' files; one shows how it is used
COMMENT = {"py": re.compile(r'#[^\n]*|"""(?:.|\n)*?"""'), "c": re.compile(r"/\*.*?\*/|//[^\n]*", re.S)}
NAME = re.compile(r"(?<![\w/.<*{\"'-])((?:[a-z_0-9]+/)*[a-z_0-9]+\.(?:c|h|md|py|sh|cmake))\b")
OTHERS = {"cmocka.h", "dlpack.h", "dnnl.h", "jax/_src/random/threefry2x32.py", "llm.c", "llama2.c"}  # not ours
# "`git show 80033a2`, *cli: info, what a model and its checkpoint are*": the subject, or how it begins
PAGE = re.compile(r"\.md$")
COMMIT = re.compile(r"`git\s+show\s+([0-9a-f]{7,40})`(?:,\s+\*([^*]+)\*)?")


def git(root, *words):
    return subprocess.run(["git", "-C", root, *words], text=True, capture_output=True)


def files_of(root):
    """Those that git knows or would; in an archive of the sources those outside of builds."""
    listed = git(root, "ls-files", "--cached", "--others", "--exclude-standard")
    if listed.returncode == 0 and listed.stdout:
        return [name for name in listed.stdout.split("\n") if os.path.isfile(os.path.join(root, name))]
    return [os.path.relpath(os.path.join(folder, name), root) for folder, _, names in os.walk(root) for name in names
            if not re.match(r"(build|\.git|runs)", os.path.relpath(folder, root))]


def commit_fault(root, name, subject):
    """What is wrong with naming this commit; None: nothing."""
    if git(root, "merge-base", "--is-ancestor", name, "HEAD").returncode:
        return f"the history has no commit {name}"
    is_called = git(root, "log", "-1", "--format=%s", name).stdout.strip()
    if subject and not is_called.startswith(" ".join(subject.split())):
        return f"commit {name} is called '{is_called}'"
    return None


def check_commits(root, files):
    """Whether each page names commits that there are. A tree whose history has none of them (an archive of the sources,
    a shallow clone) tells nothing."""
    faults, named = [], 0
    for name in filter(PAGE.search, files):
        with open(os.path.join(root, name), encoding="utf-8") as file:
            text = file.read()
        for cited in COMMIT.finditer(text):
            named += 1
            fault = commit_fault(root, cited[1], cited[2])
            if fault:
                faults.append((fault, f"{name}:{text.count(chr(10), 0, cited.start()) + 1}: {fault}"))
    has_none = len([f for f, _ in faults if f.startswith("the history")]) == named
    for _, line in [] if has_none else faults:
        print(line)
    return has_none or not faults


def main():
    root = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
    files = files_of(root)
    ends = {name[at:] for name in files for at in [0, *(m.end() for m in re.finditer("/", name))]}  # and shorter paths
    bad = seen = 0
    for name in files:
        if not CHECKED.match(name) or NOT_CHECKED.match(name):
            continue
        with open(os.path.join(root, name), encoding="utf-8") as file:
            text = file.read()
        for comment in COMMENT["py" if name.endswith(".py") else "c"].finditer(text):
            for cited in NAME.finditer(comment[0]):
                seen += 1
                if cited[1] not in ends and cited[1] not in OTHERS:
                    line = text.count("\n", 0, comment.start() + cited.start()) + 1
                    print(f"{name}:{line}: there is no {cited[1]}")
                    bad = 1
    if not seen:
        sys.exit(f"{root}: no comment names a file")
    if not check_commits(root, files):
        bad = 1
    sys.exit(bad)


main()
