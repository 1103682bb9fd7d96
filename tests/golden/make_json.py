"""Writes json_texts.txt: texts that are odd as JSON, and what Python's json makes of each. A line is the text in hexadecimal,
a blank, and its value, or - where Python refuses it. Of values: n, t, f; i and an integer of 64 bits; r and the bits of any
other finite number; x for what is not finite; s and the bytes of a string, of which halves of surrogate pairs are U+FFFD;
[...] and {...} of values, each followed by a comma, keys as strings are. A byte order mark at the beginning is passed over
(Python refuses it in text, and takes it in bytes). Needs Python alone."""

import json
import math
import os
import random
import struct


def show(value):
    if value is None:
        return "n"
    if value is True or value is False:
        return "t" if value else "f"
    if isinstance(value, str):
        text = value.encode("utf-16", "surrogatepass").decode("utf-16", "replace") if any(0xD800 <= ord(c) < 0xE000 for c in value) else value
        return "s" + text.encode().hex()
    if isinstance(value, list):
        return "[" + "".join(show(v) + "," for v in value) + "]"
    if isinstance(value, dict):
        return "{" + "".join(show(k) + show(v) + "," for k, v in value.items()) + "}"
    if isinstance(value, int) and -(2**63) <= value < 2**63:
        return "i%d" % value
    try:
        value = float(value)
    except OverflowError:
        return "x"
    return "r" + struct.pack(">d", value).hex() if math.isfinite(value) else "x"


def read(text):
    try:
        return show(json.loads(text.decode("utf-8").removeprefix("\ufeff")))
    except (ValueError, RecursionError):
        return "-"


chosen = r"""
1000000000000000019884624838656 9223372036854775807 9223372036854775808 -9223372036854775808 -9223372036854775809
18446744073709551615 1e400 -1e400 1e-400 1e308 1.7976931348623157e308 1.7976931348623159e308 4.9e-324 -0 -0.0 0.1 00 01
-01 1. .5 1.e5 1e 1e+ 1e+05 1E-5 + +1 - -a 1-2 0x10 1_000 NaN -NaN nan Infinity -Infinity +Infinity inf Infinit [NaN,Infinity,-Infinity]
{"a":NaN} {"a":1,"a":2} {"a":1,"b":2,"a":3} {"a":{"a":1,"a":2}} {"":1} {"\u0000":1} {"a\u0000b":1,"a":2} {"a":1,} {,} {"a"} {"a":}
{a:1} {1:2} {'a':1} [1,] [,] [,1] [1,,2] [1 2] [ ] { } [] {} [[ {{ ]] [} {] "abc "abc" "a"b" 'a' "\u0000" "\ud83d" "\ud83d\ude00"
"\ude00\ud83d" "\ud83d\ud83d\ude00" "\ud83dx" "\ud83d\n" "\ud83d\u0041" "\uD83D\uDE00" "\u00e9" "\u00E9" "\u" "\u12" "\u12G4"
"\u+123" "\u-123" "\x41" "\a" "\'" "\"" "\\" "\/" "\b\f\n\r\t" "\v" "\
true false null True TRUE tru nul nullx truefalse 1true [true,false,null] {"a":true} // /**/ #
""".split()
bytes_chosen = [
    b"", b" ", b"\n\t\r ", b" 1 ", b"\x0b1", b"\xa01", b"1\x00", b"\x00", b'"\x00"', b'"\x1f"', b'"\x7f"', b'"\t"', b'"\n"',
    b'\xef\xbb\xbf{"a":1}', b"\xef\xbb\xbf", b'\xef\xbb\xbf\xef\xbb\xbf{"a":1}', b'[\xef\xbb\xbf1]', b'"\xef\xbb\xbf"', b'"\xff"',
    b'"\xc3"', b'"\xed\xa0\xbd"', b'"\xc0\xaf"', b'"\xf0\x9f\x98\x80"', b'"\xf4\x90\x80\x80"', b"\xff\xfe{\x00", b'{"a": 1}{"b": 2}',
    b'{"a": 1} x', b'{"a"\n:\r\n1\t,"b" : [ 1 , 2 ] }', b'{"text": "a\\u0000b", "n": 1e400, "id": 18446744073709551615}',
    b'{"model_max_length": 1000000000000000019884624838656, "x": [{"y": -Infinity}]}', b"1" + b"0" * 400, b"-1" + b"0" * 400,
    b"0." + b"0" * 400 + b"1", b"[" * 60 + b"]" * 60, b"[" * 200 + b"]" * 200, b'{"a":' * 300 + b"1" + b"}" * 300, b"[" * 50, b'"' + b"a" * 300,
    b'{"a":1 "b":2}', b'{"a":1;"b":2}', b'["a":1]', b"[1]]", b"\"a\" \"b\"", b'{"a":"\\ud83d\\ude00\\udc00"}', b"[1,2\x00]", b"[-]", b"[1e5,1E5,1e+5,1.5e-5]",
]
texts = [t.encode() for t in chosen] + bytes_chosen
draw = random.Random(5)
pieces = [b'"', b"\\", b"\\u", b"\\ud83d", b"\\ude00", b"\\u0000", b"{", b"}", b"[", b"]", b",", b":", b"1", b"-", b"e", b".", b"0", b"NaN", b"null", b" ", b"\n", b'"a"', b"\xc3\xa9", b"\xff", b"Infinity"]
sources = [t for t in texts if len(t) < 60]
for _ in range(500):
    text = bytearray(draw.choice(sources))
    for _ in range(draw.randrange(1, 3)):
        at = draw.randrange(len(text) + 1)
        text[at:at + draw.randrange(2)] = draw.choice(pieces)
    texts.append(bytes(text))
texts = list(dict.fromkeys(texts))
lines = [t.hex() + " " + read(t) for t in texts]
with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "json_texts.txt"), "w") as out:
    out.write("\n".join(lines) + "\n")
print(len(lines), "texts, of which Python reads", sum(not line.endswith(" -") for line in lines))
