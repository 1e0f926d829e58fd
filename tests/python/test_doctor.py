"""``python -m jitlock.torch doctor``, and what ``protect`` changes, without torch."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
import tempfile
import unittest

import jitlock


class DoctorTest(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory(prefix="jitlock-test-")
        self.addCleanup(directory.cleanup)
        self.root = directory.name

    def build_dir(self, name, *files):
        path = os.path.join(self.root, "py311_cpu", name)
        os.makedirs(path)
        for file in files:
            with open(os.path.join(path, file), "w"):
                pass
        return path

    def doctor(self, *arguments, **options):
        command = [sys.executable, "-m", "jitlock.torch", "doctor", *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False, **options)

    def test_stale_locks_are_shown_and_only_those_removed(self):
        stale = self.build_dir("stale", "lock", "build.ninja")
        used = self.build_dir("used", "lock")
        clean = self.build_dir("clean", "build.ninja")
        with open(os.path.join(used, "lock")) as file, jitlock.lock(clean):
            told = self.doctor(self.root)
            self.assertEqual(told.returncode, 1, told.stderr)
            for word in (stale, "stale: torch", used, f"in use by pid {os.getpid()}", f"locked by pid {os.getpid()}"):
                self.assertIn(word, told.stdout)
            self.assertTrue(os.path.exists(os.path.join(stale, "lock")))
            self.assertEqual(self.doctor("--remove", self.root).returncode, 0)
            self.assertFalse(os.path.exists(os.path.join(stale, "lock")))
            self.assertTrue(os.path.exists(file.name))
        self.assertEqual(sorted(os.listdir(stale)), ["build.ninja"])

    def test_it_looks_where_torch_does_and_speaks_json(self):
        self.build_dir("stale", "lock")
        told = self.doctor("--json", env={**os.environ, "TORCH_EXTENSIONS_DIR": self.root})
        (known,) = json.loads(told.stdout)
        self.assertEqual((known["baton"], known["state"], told.returncode), ("stale", "none", 1))

    def test_it_asks_on_a_terminal(self):
        for answer, code in (("n", 1), ("y", 0)):
            stale = self.build_dir(answer, "lock")
            ours, theirs = pty.openpty()
            command = [sys.executable, "-m", "jitlock.torch", "doctor", self.root]
            process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs)
            os.close(theirs)
            shown = b""
            while b"[y/N]" not in shown:
                shown += os.read(ours, 1000)
            os.write(ours, answer.encode() + b"\n")
            self.assertEqual(process.wait(), code)
            os.close(ours)
            self.assertEqual(os.path.exists(os.path.join(stale, "lock")), answer == "n")

    def test_orphans_and_deaths_are_told(self):
        path = self.build_dir("kernel", "build.ninja")
        program = """
import os, subprocess, sys, jitlock
held = jitlock.Lock(sys.argv[1])
held.acquire()
orphan = subprocess.Popen(["sleep", "1000"], cwd=sys.argv[1], stdout=subprocess.DEVNULL)
print(orphan.pid, flush=True)
os._exit(1)
"""
        died = subprocess.run([sys.executable, "-c", program, path], stdout=subprocess.PIPE, text=True, check=False)
        orphan = int(died.stdout)
        try:
            told = self.doctor(self.root)
            self.assertIn(f"pid {orphan}", told.stdout)
            self.assertEqual(told.returncode, 0)
        finally:
            os.kill(orphan, 9)

    def test_bad_usage_is_one_line_and_status_2(self):
        told = self.doctor("/nonexistent")
        self.assertEqual(told.returncode, 2)
        self.assertIn("/nonexistent is no directory", told.stderr)
        self.assertEqual(self.doctor("--frobnicate").returncode, 2)


if __name__ == "__main__":
    unittest.main()
