#!/usr/bin/env python3
"""Whether comparisons take turns as they say, and the page is what the samples are; without peers, in a second."""

import json
import os
import pathlib
import sys
import tempfile
import unittest
import xml.dom.minidom

import report
import rows
import turns


class Told:
    """A side whose turns are known beforehand; None: it fails."""

    def __init__(self, log: list, name: str, numbers: list) -> None:
        self.log, self.name, self.numbers = log, name, list(numbers)

    def turn(self):
        self.log.append(self.name)
        number = self.numbers.pop(0)
        if number is None:
            raise RuntimeError("out of order")
        return {self.name: number}

    def stop(self) -> None:
        self.log.append(f"{self.name} stops")


def told(**numbers):
    log: list = []
    return {name: (lambda n=name, of=of: Told(log, n, of)) for name, of in numbers.items()}, log


class Turns(unittest.TestCase):
    def test_alternation(self):
        makers, log = told(a=[1, 2], b=[3, 4], c=[5, 6])
        series, faults = turns.alternate(makers, 2, 1e9)
        self.assertEqual(log, ["a", "b", "c", "b", "c", "a", "a stops", "b stops", "c stops"])
        self.assertEqual((series, faults), ({"a": [1, 2], "b": [3, 4], "c": [5, 6]}, {}))

    def test_a_side_that_fails_ends_alone(self):
        makers, _ = told(a=[1, 2, 3], b=[4, None])

        def absent():
            raise rows.NotInstalled("not installed")

        series, faults = turns.alternate({**makers, "c": absent}, 3, 1e9)
        self.assertEqual(series, {"a": [1, 2, 3], "b": [4, None, None]})
        self.assertEqual(faults, {"b": "out of order", "c": "not installed"})

    def test_a_model_that_cannot_be_made_leaves_nothing(self):
        with tempfile.TemporaryDirectory() as folder:
            s = rows.Setup(pathlib.Path(), pathlib.Path(), pathlib.Path(folder) / "models", [0])
            half = "import os, sys; os.mkdir(sys.argv[1]); sys.exit('no room')"
            with self.assertRaisesRegex(RuntimeError, "a could not be made: no room"):
                s.made("a", sys.executable, "-c", half, "{}")
            self.assertEqual(list(s.models.iterdir()), [])
            made = s.made("b", sys.executable, "-c", "import training, os, sys; os.mkdir(sys.argv[1])", "{}")
            self.assertTrue(made.is_dir())

    def test_time_ends_rounds(self):
        makers, _ = told(a=[1] * 9)
        self.assertEqual(turns.alternate(makers, 9, 0)[0], {"a": [1]})

    def test_others(self):
        others = turns.Others()
        alone = turns.Command([sys.executable, "-c", "sum(range(10**7))"], turns.cores(1), lambda _: {"x": 1})
        alone.turn()
        self.assertLess(others.cores(), len(os.sched_getaffinity(0)) + 4)  # its own time is not theirs
        self.assertGreaterEqual(others.cores(), 0)

    def test_statistics(self):
        self.assertEqual(turns.quartiles([4, None, 1, 2, 3, 5]), (2, 3, 4))
        self.assertEqual(turns.quartiles([7]), (7, 7, 7))
        self.assertIsNone(turns.quartiles([None]))
        self.assertEqual(turns.ratios([2, None, 9], [1, 1, 3]), [2, 3])

    def test_commands(self):
        on = turns.cores(1)
        side = turns.Command([sys.executable, "-c", "print('[{\"x\": 2}]')"], on, rows.said(lambda d: d[0]))
        self.assertEqual(side.turn(), {"x": 2})
        with self.assertRaisesRegex(RuntimeError, "wrong"):
            turns.Command([sys.executable, "-c", "raise SystemExit('wrong')"], on, lambda _: {}).turn()
        endless = "import time\nfor i in range(9): print('step', i, flush=True); time.sleep(0.01)\ntime.sleep(60)"
        watched = turns.Watched(
            [sys.executable, "-c", endless], on, lambda text: {"n": 3} if text.count("step") == 3 else {}
        )
        self.assertEqual(watched.turn(), {"n": 3})
        where = f"import sys; sys.path.insert(0, {str(turns.here('.'))!r})"
        server = f"{where}; import turns; turns.serve(lambda: {{'y': 1}})"
        side = turns.Server([sys.executable, "-c", server], on)
        self.assertEqual([side.turn(), side.turn()], [{"y": 1}, {"y": 1}])
        side.stop()
        self.assertEqual(side.process.returncode, 0)


SAMPLES = {
    "machine": {"cpu": "A <CPU>", "flags": ["avx2"], "cores": 2, "pinned": [0, 1], "memory_gib": 4, "system": "Linux",
                "versions": {"cleave": "cleave 0.1", "JAX": ""}},
    "rows": {
        "decode-f32": {"unit": "tokens/s", "when": "2026-01-02T03:04:05", "others": 0.1, "commit": "abc", "absent":
                       {"llama.cpp": "not installed"},
                       "samples": {"cleave": [10, 20, 30], "cleave -tp 1 -t 2": [10, 10, 10],
                                   "reading memory": [20, 20, None]}},
        "first-token": {"unit": "ms", "when": "2026-01-02T03:04:05", "others": 0.1, "commit": "abc", "absent": {},
                        "samples": {"cleave": [200], "load + warm prompt": [150]}},
    },
}  # fmt: skip


class Page(unittest.TestCase):
    def test_page(self):
        with tempfile.TemporaryDirectory() as name:
            page = pathlib.Path(name) / "performance.md"
            page.write_text(f"before\n{report.START}\nold\n{report.END}\nbehind\n")
            for _ in range(2):  # a second writing changes nothing
                report.write(page, json.loads(json.dumps(SAMPLES)), rows.ROWS)
                text = page.read_text()
            self.assertTrue(text.startswith("before\n") and text.endswith("\nbehind\n") and "old" not in text)
            for part in (
                "| cleave -tp 1 -t 2 | 20 (15–25) | 10 (10–10) | 2.00 (1.50–2.50) | 1.00 ✓ |",
                "| llama.cpp | 20 | not installed | – | 1.10 |",
                "| reading memory | 20 (15–25) | 20 (20–20) | 0.75 (0.62–0.88) | 0.92 |",
                "| load + warm prompt | 200 (200–200) | 150 (150–150) | 0.75 (0.75–0.75) | 0.77 |",
                "| training step, H512 L4, 4 × 512, f32 | | | not measured",
                "| decode of a 134M Llama, f32 weights (tokens/s) | cleave -tp 1",
                "3, 2026-01-02 03:04, 0.1 |",
                "Not installed: JAX.",
            ):
                self.assertIn(part, text)
            drawn = xml.dom.minidom.parse(str(page.with_suffix(".svg")))
            self.assertEqual(len(drawn.getElementsByTagName("rect")), 1 + 3)

    def test_rows_have_names_of_their_own(self):
        names = [row.name for row in rows.ROWS]
        self.assertEqual(len(set(names)), len(names))
        for row in rows.ROWS:
            self.assertIn(rows.OURS, row.parts)


if __name__ == "__main__":
    unittest.main()
