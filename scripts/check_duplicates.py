#!/usr/bin/env python3
"""Finds functions of src/ that stand in two files, word for word or with other names of their own: logic has one home.
usage: scripts/check_duplicates.py [ROOT]     ROOT: the tree to check, default this one

Functions of a few words (a comparison, a call passed on) are let be. So are those of src/kernels/cpu/isa, compiled by
themselves.
"""
import glob
import os
import re
import sys

FEW = 43  # words, as TOKEN finds them
FUNCTION = re.compile(r"^([^\n;={}#]*?\b(\w+)(\([^;{}]*\)))\n\{\n(.*?)^\}", re.S | re.M)
TOKEN = re.compile(r'"(?:\\.|[^"\\])*"|\w+|->|[^\w\s]')
C_WORDS = set("if else for while do return sizeof const void int char double float bool true false NULL break continue "
              "switch case default static struct enum unsigned int32_t int64_t uint32_t uint64_t uint8_t "
              "size_t".split())


def words_of(text, name):
    """The words of a function's parameters and body; names that are nobody else's are numbered as they come."""
    tokens, own, out = TOKEN.findall(text), {}, []
    for before, token, after in zip(["", *tokens], tokens, [*tokens[1:], ""]):
        if token == name:
            token = "itself"
        elif (re.match(r"[A-Za-z_]", token) and token not in C_WORDS and before not in ("->", ".") and after != "("
              and not token.startswith(("clv_", "CLV_")) and not token.isupper()):
            token = own.setdefault(token, f"name{len(own)}")
        out.append(token)
    return out


def main():
    root = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
    homes, functions = {}, 0
    for path in sorted(glob.glob(f"{root}/src/**/*.[ch]", recursive=True)):
        file = os.path.relpath(path, root)
        if file.startswith("src/kernels/cpu/isa/"):
            continue
        with open(path, encoding="utf-8") as source:
            text = re.sub(r"/\*.*?\*/", "", source.read(), flags=re.S)
        for _, name, parameters, body in FUNCTION.findall(text):
            functions += 1
            words = words_of(parameters + body, name)
            if len(words) >= FEW:
                homes.setdefault(tuple(words), []).append((file, name))
    if functions == 0:
        sys.exit(f"{root}/src: no functions")
    copies = [found for found in homes.values() if len({file for file, _ in found}) > 1]
    for found in copies:
        print("the same function: " + ", ".join(f"{name} of {file}" for file, name in found))
    sys.exit(1 if copies else 0)


main()
