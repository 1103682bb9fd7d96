#!/usr/bin/env python3
"""Writes the C source of the extension module cleave._cleave, by cffi, from the public headers.

usage: bindings.py INCLUDE_DIR OUT.c [COMPILER]

No declaration is copied by hand: the headers are preprocessed without those of the system, whose types cffi knows. Each
function type of a callback NAME becomes a C function python_NAME that calls into Python.
"""
import pathlib
import re
import subprocess
import sys
import tempfile

import cffi

SYSTEM_HEADERS = ("stddef.h", "stdint.h", "stdbool.h", "stdarg.h")


def preprocess(include: pathlib.Path, compiler: str) -> str:
    with tempfile.TemporaryDirectory() as empty:
        for name in SYSTEM_HEADERS:
            (pathlib.Path(empty) / name).touch()
        command = [compiler, "-E", "-P", "-undef", "-nostdinc", "-std=c17", "-D__attribute__(x)=", "-I", empty, "-I",
                   str(include), "-x", "c", str(include / "cleave" / "cleave.h")]
        return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def declarations(text: str) -> str:
    callbacks = re.findall(r"typedef ([^;{}()]*?)(\w+)\(([^;{}]*)\);", text)
    for result, name, arguments in callbacks:
        # a function declared by the name of its type: cffi wants it written out
        text = re.sub(rf"^\s*{name}\s+(\w+);", rf"{result} \1({arguments});", text, flags=re.M)
        text += f'extern "Python" {result} python_{name}({arguments});\n'
    return text + "void free(void *);\n"


def main() -> None:
    include, out = pathlib.Path(sys.argv[1]), sys.argv[2]
    compiler = sys.argv[3] if len(sys.argv) > 3 else "cc"
    ffi = cffi.FFI()
    ffi.cdef(declarations(preprocess(include, compiler)))
    ffi.set_source("cleave._cleave", "#include <stdlib.h>\n#include <cleave/cleave.h>")
    ffi.emit_c_code(out)


if __name__ == "__main__":
    main()
