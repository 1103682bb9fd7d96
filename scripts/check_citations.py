#!/usr/bin/env python3
"""Files of the project that comments of the sources name are there; names each that is not.
usage: scripts/check_citations.py [ROOT]     ROOT: the tree to check, default this one
"""
import os
import re
import subprocess
import sys

CHECKED = re.compile(r"^(src|include|tests|examples|python|bench)/.*\.(c|h|cpp|py)$")
NOT_CHECKED = re.compile(r"^tests/(golden|abi)/|^src/kernels/cpu/isa\.h$")  # others' files; one shows how it is used
COMMENT = {"py": re.compile(r'#[^\n]*|"""(?:.|\n)*?"""'), "c": re.compile(r"/\*.*?\*/|//[^\n]*", re.S)}
NAME = re.compile(r"(?<![\w/.<*{\"'-])((?:[a-z_0-9]+/)*[a-z_0-9]+\.(?:c|h|md|py|sh|cmake))\b")
OTHERS = {"cmocka.h", "dlpack.h", "jax/_src/random/threefry2x32.py"}  # not ours


def main():
    root = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
    listed = subprocess.run(["git", "-C", root, "ls-files", "--cached", "--others", "--exclude-standard"], text=True,
                            capture_output=True, check=True).stdout.split("\n")
    files = [name for name in listed if os.path.isfile(os.path.join(root, name))]
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
    sys.exit(bad)


main()
