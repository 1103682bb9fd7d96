#!/usr/bin/env python3
"""What comments of the public headers say: of each function that may fail, by what; of each that makes something, who
frees it.
usage: scripts/check_header_comments.py [ROOT]     ROOT: the tree to check, default this one
"""
import glob
import os
import re
import sys

# the last comment before a function, and what it declares
DECLARED = re.compile(r"/\*\*((?:(?!\*/).)*)\*/\s*CLV_(?:API|EXPERIMENTAL) ([^;]+);", re.S)
ERRORS = re.compile(r"@return|CLV_E[A-Z]+")
OWNERS = re.compile(r"[Ff]ree|[Bb]orrowed|End with|Leave with|lives? with")


def main():
    root = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
    bad = seen = 0
    for path in sorted(glob.glob(f"{root}/include/cleave/*.h")):
        with open(path, encoding="utf-8") as header:
            text = header.read()
        for comment, declared in DECLARED.findall(text):
            name = re.search(r"\b(clv_\w+)\(", declared)
            if not name or not declared.startswith("clv_status "):
                continue
            seen += 1
            if not ERRORS.search(comment):
                print(f"{os.path.relpath(path, root)}: {name[1]} does not say how it fails")
                bad = 1
            if re.search(r"\*\*(?!argv)\w+", declared) and not OWNERS.search(comment):
                print(f"{os.path.relpath(path, root)}: {name[1]} does not say who frees what it makes")
                bad = 1
    if not seen:
        sys.exit(f"{root}/include/cleave: no function")
    sys.exit(bad)


main()
