#!/usr/bin/env python3
"""Checks that a program built against frozen headers runs with today's library: what it may have compiled in is where
it was.

usage: check_abi.py FROZEN TODAY [--library SO] [--sources DIR] [--released]

FROZEN and TODAY are folders that hold cleave/cleave.h. Structs are compared as the compiler lays them out (DWARF),
functions by declaring the frozen ones once more behind today's headers, symbols by nm. --released (from version 1.0
on): a struct that grew must be taken with the size that its first version had, which the sources under DIR tell by
offsetof(struct, its first new field).
"""
import argparse
import glob
import os
import re
import subprocess
import sys
import tempfile

CC = os.environ.get("CC", "cc").split()
LIBRARY_MADE = {"clv_call"}  # the library alone makes one, and programs have it by a pointer: it may grow at its end


def compile_c(text, include, *options):
    """The object file of a C text, or an exception with what the compiler says."""
    path = tempfile.mkstemp(suffix=".o")[1]
    done = subprocess.run(CC + ["-std=c17", "-x", "c", "-c", "-I", include, "-o", path, *options, "-"], input=text,
                          text=True, capture_output=True)
    if done.returncode:
        os.unlink(path)
        raise ValueError(done.stderr)
    return path


def entries(object_path):
    """Every entry of the debug information: {offset: (depth, tag, attributes)}, in order."""
    out, at = {}, None
    command = ["readelf", "--wide", "--debug-dump=info", object_path]
    text = subprocess.run(command, text=True, capture_output=True, check=True).stdout
    for line in text.splitlines():
        if m := re.match(r" *<(\d+)><([0-9a-f]+)>: Abbrev Number: \d+ \((DW_TAG_\w+)\)", line):
            at = out[int(m[2], 16)] = (int(m[1]), m[3], {})
        elif at and (m := re.match(r" +<[0-9a-f]+> +(DW_AT_\w+) *: (.*)", line)):
            # "(strp) (offset: 0x1cb): clv_mesh", by other versions otherwise
            at[2][m[1]] = re.sub(r"^(\([^)]*\):? )+", "", m[2]).strip()
    return out


def number(text):
    return int(text.split()[0], 0)


class Layout:
    """Of the headers in a folder: structs {name: (bytes, {field: (offset, type)})}, enumerators {name: value},
    callbacks {name: type}."""

    def __init__(self, include):
        path = compile_c('#include "cleave/cleave.h"\n', include, "-g", "-fno-eliminate-unused-debug-types")
        self.all = entries(path)
        os.unlink(path)
        self.structs, self.constants, self.callbacks = {}, {}, {}
        struct = None
        for at, (depth, tag, a) in self.all.items():
            if tag == "DW_TAG_typedef" and a.get("DW_AT_name", "").startswith("clv_") and self.is_function(a):
                self.callbacks[a["DW_AT_name"]] = self.type_of(a)
            if struct and depth <= struct[0]:
                struct = None
            if tag == "DW_TAG_structure_type" and a.get("DW_AT_name", "").startswith("clv_") and "DW_AT_byte_size" in a:
                struct = (depth, {})
                self.structs[a["DW_AT_name"]] = (number(a["DW_AT_byte_size"]), struct[1])
            elif tag == "DW_TAG_member" and struct and depth == struct[0] + 1:
                struct[1][a["DW_AT_name"]] = (number(a["DW_AT_data_member_location"]), self.type_of(a))
            elif tag == "DW_TAG_enumerator":
                self.constants[a["DW_AT_name"]] = number(a["DW_AT_const_value"])

    @staticmethod
    def target(attributes):
        return int(re.match(r"<(?:0x)?([0-9a-f]+)>", attributes["DW_AT_type"])[1], 16)

    def is_function(self, attributes):
        return "DW_AT_type" in attributes and self.all[self.target(attributes)][1] == "DW_TAG_subroutine_type"

    def children(self, parent):
        for offset in sorted(o for o in self.all if o > parent):
            if self.all[offset][0] <= self.all[parent][0]:
                return
            yield self.all[offset][2]

    def type_of(self, attributes):
        if "DW_AT_type" not in attributes:
            return "void"
        at = self.target(attributes)
        _, tag, a = self.all[at]
        if tag == "DW_TAG_pointer_type":
            return self.type_of(a) + " *"
        if tag == "DW_TAG_const_type":
            return "const " + self.type_of(a)
        if tag == "DW_TAG_array_type":
            bounds = [number(c["DW_AT_upper_bound"]) + 1 for c in self.children(at) if "DW_AT_upper_bound" in c]
            return self.type_of(a) + "".join(f"[{n}]" for n in bounds)
        if tag == "DW_TAG_subroutine_type":
            return f"{self.type_of(a)} ({', '.join(self.type_of(c) for c in self.children(at))})"
        return a.get("DW_AT_name", tag)


def functions(include):
    """Declarations of the headers, by name."""
    out = {}
    for path in sorted(glob.glob(include + "/cleave/*.h")):
        text = re.sub(r"/\*.*?\*/|^\s*#(?:[^\n]*\\\n)*[^\n]*$", "", open(path).read(), flags=re.S | re.M)
        for declaration in re.findall(r"CLV_API\s[^;]*;", text):
            name = re.search(r"\b(clv_\w+)\s*(?:\(|;)", declaration)
            if name:
                out[name[1]] = " ".join(declaration.split())
    return out


def is_count(name):
    """How many there are of an enum grows with it."""
    return name.endswith("_COUNT") or name.startswith("CLV_N_")


def check_struct(name, frozen, today, sources, released):
    size, fields = frozen
    if name not in today:
        yield f"struct {name} is gone"
        return
    new_size, new_fields = today[name]
    room = fields.get("reserved")
    for field, (offset, kind) in fields.items():
        if field == "reserved":
            continue
        if field not in new_fields:
            yield f"{name}.{field} is gone"
        elif new_fields[field] != (offset, kind):
            yield f"{name}.{field} was {kind} at {offset}, is {new_fields[field][1]} at {new_fields[field][0]}"
    added = [f for f in new_fields if f not in fields and f != "reserved"]
    grows = list(fields)[:1] == ["size"]
    if not grows and new_size != size and (name not in LIBRARY_MADE or new_size < size):
        yield f"{name} had {size} bytes, has {new_size}: it does not begin with its size"
    for field in added:
        end = size if grows else room[0] if room else size
        if new_fields[field][0] < end:
            yield (f"{name}.{field} is new and lies at {new_fields[field][0]}, among what older programs have; "
                   f"behind {end} is its place")
    if grows and added and released and not re.search(rf"offsetof\({name}, {added[0]}\)", sources):
        yield f"{name} has grown: who takes it must say that its first version ended at offsetof({name}, {added[0]})"


def check_declarations(frozen, include):
    """Which of the frozen functions today's headers do not have, or have otherwise."""
    today = functions(include)
    for name, declaration in frozen.items():
        if name not in today:
            yield f"{name} is no longer declared"
        elif today[name] != declaration:
            try:
                os.unlink(compile_c(f'#include "cleave/cleave.h"\n{declaration}\n', include))
            except ValueError:
                yield f"{name} was '{declaration}', is '{today[name]}'"


def check_symbols(frozen, today, library):
    text = subprocess.run(["nm", "-D", "--defined-only", library], text=True, capture_output=True, check=True).stdout
    exported = dict(re.findall(r"^\S+ [A-Z] (clv_\w+)(@\S*)?$", text, flags=re.M))
    others = re.findall(r"^\S+ [TDBRVW] (?!clv_|CLEAVE_)(\S+)$", text, flags=re.M)
    for name in sorted(set(frozen) - set(exported)):
        yield f"{library} does not export {name}"
    for name in sorted(set(exported) - set(today)):
        yield f"{library} exports {name}, which no header declares"
    for name in sorted(n for n in exported if "CLEAVE_" not in exported[n]):
        yield f"{library}: {name} has no version"
    for name in others:
        yield f"{library} exports {name}"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("frozen")
    parser.add_argument("today")
    parser.add_argument("--library")
    parser.add_argument("--sources")
    parser.add_argument("--released", action="store_true")
    a = parser.parse_args()
    old, new = Layout(a.frozen), Layout(a.today)
    sources = "".join(open(p).read() for p in glob.glob(a.sources + "/**/*.c", recursive=True)) if a.sources else ""
    faults = [f for name, then in old.structs.items()
              for f in check_struct(name, then, new.structs, sources, a.released)]
    for name, value in old.constants.items():
        if not is_count(name) and new.constants.get(name) != value:
            faults.append(f"{name} was {value}, is {new.constants.get(name, 'gone')}")
    for name, kind in old.callbacks.items():
        if new.callbacks.get(name) != kind:
            faults.append(f"{name} was {kind}, is {new.callbacks.get(name, 'gone')}")
    frozen = functions(a.frozen)
    faults += check_declarations(frozen, a.today)
    if a.library:
        faults += check_symbols(frozen, functions(a.today), a.library)
    counts = (f"{len(old.structs)} structs, {len(old.constants)} constants, {len(old.callbacks)} callbacks and "
              f"{len(frozen)} functions")
    print("\n".join(faults) if faults else f"{counts} are as they were")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
