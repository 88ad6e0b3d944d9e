#!/usr/bin/env python3
"""Runs programs that people run under `margay vm run`, with less RAM than their heap, compares what they print with a plain run, and
prints a table: docs/paging.md, "Programs".

Usage: paging-programs.py [--ram SIZE] [--only NAME[,NAME...]] [--quick]
MARGAY names the command (default: target/release/margay). With --quick, the programs that take little time. The exit code is 1 if
a program did not print what it prints without margay."""

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MARGAY = os.environ.get("MARGAY", str(ROOT / "target/release/margay"))

PYTHON = "d = {i: str(i) * 3 for i in range(150_000)}\nprint(sum(len(v) for v in d.values()), d[77777])"
PYTHON_FORKS = (
    "import multiprocessing as m\nd = list(map(str, range(200000)))\n"
    "def f(n): return sum(len(x) for x in d[n::4])\n"
    "with m.get_context('fork').Pool(4) as p: print(p.map(f, range(4)))"
)
NODE = "const b=[];for(let i=0;i<40;i++)b.push(Buffer.alloc(1<<20,i));let s=0;for(const x of b)for(let i=0;i<x.length;i+=997)s+=x[i];console.log(s)"
PERL = "my %h; $h{$_} = $_ x 3 for 1..60000; my $s = 0; $s += length($h{$_}) for keys %h; print qq($s $h{777}\\n)"
RUBY = "h = {}; 100000.times { |i| h[i.to_s] = i.to_s * 5 }; puts h.values.sum(&:size), h['777']"
LUA = "local t = {} for i = 1, 150000 do t[i] = tostring(i) .. 'x' end local s = 0 for i = 1, #t do s = s + #t[i] end print(s, t[777])"
PHP = "$a = []; for ($i = 0; $i < 200000; $i++) $a[] = str_repeat((string)$i, 3); $s = 0; foreach ($a as $x) $s += strlen($x); echo $s, $a[777], PHP_EOL;"
AWK = "BEGIN { for (i = 0; i < 150000; i++) a[i] = i \"text\" i; for (i = 0; i < 150000; i += 7) s += length(a[i]); print s }"
SQL = (
    "create table t(a integer primary key, b text); with recursive c(x) as (select 1 union all select x+1 from c where x<100000) "
    "insert into t select x, hex(x*7919%40009)||'padding padding' from c; create index i on t(b); "
    "select count(*), sum(a), min(b), max(b) from t; pragma integrity_check;"
)
GUILE = "(let ((v (make-vector 300000 0))) (do ((i 0 (+ i 1))) ((= i 300000)) (vector-set! v i (number->string i))) (display (string-length (apply string-append (vector->list v)))) (newline))"
LISP = '(let ((h (make-hash-table))) (dotimes (i 200000) (setf (gethash i h) (list i i))) (print (hash-table-count h)) (terpri))'
OCAML = 'let () = let a = Array.init 300000 string_of_int in Printf.printf "%d\\n" (Array.fold_left (fun s x -> s + String.length x) 0 a)\n'
BASH = (
    "for i in {1..60000}; do a[i]=text$i; done; (echo ${#a[@]} ${a[777]}; a=(); echo ${#a[@]}) | cat; "
    "x=$(echo ${a[59999]} | tr t T); echo $x; { sleep 0.1; echo ${a[5]}; } & wait; ls / | wc -l | sed s/[0-9]*/lines/"
)
REDIS = """redis-server --port 0 --unixsocket $PWD/s --save '' --dir $PWD --appendonly no --enable-debug-command yes > server.log & server=$!
while ! redis-cli -s s ping > /dev/null 2>&1; do sleep 0.05; done
redis-cli -s s debug populate 60000 key 200; redis-cli -s s bgsave > /dev/null
while redis-cli -s s info persistence | grep -q rdb_bgsave_in_progress:1; do sleep 0.05; done
redis-cli -s s debug digest; redis-cli -s s debug reload; redis-cli -s s debug digest; redis-cli -s s shutdown nosave; wait $server"""
GIT = """rm -rf repo; git init -q repo; cd repo; git config gc.autoDetach false; git config core.deltaBaseCacheLimit 4m; git config user.name a; git config user.email a@example; head -60000 ../text > big; git add big
export GIT_AUTHOR_DATE='2026-01-01T00:00:00Z' GIT_COMMITTER_DATE='2026-01-01T00:00:00Z'
git commit -qm one; sed s/line/LINE/ big > b; mv b big; git commit -qam two; git gc -q; git fsck --strict; git log --format=%H"""
JAVA = "class A { public static void main(String[] x) { var m = new java.util.HashMap<Integer, String>(); for (int i = 0; i < 100000; i++) m.put(i, \"v\" + i); System.out.println(m.size() + m.get(777)); } }"
GO = "package main\nfunc main() { m := map[int]string{}\nfor i := 0; i < 100000; i++ { m[i] = string(rune(i)) }\nprintln(len(m)) }\n"
RUST = "fn main() { let v: Vec<String> = (0..10).map(|n: u32| n.to_string()).collect(); println!(\"{}\", v.join(\"\")); }"

# Name, command that prints the version, script for sh, whether it is quick.
PROGRAMS = [
    ("python3", "python3 --version", "exec python3 big.py", True),
    ("python3, a pool of forks", "python3 --version", "exec python3 forks.py", False),
    ("node (buffers)", "node --version", "exec node big.js", False),
    ("perl", "perl -e 'print $^V'", "exec perl big.pl", False),
    ("ruby", "ruby --version", "exec ruby big.rb", False),
    ("lua", "lua5.4 -v", "exec lua5.4 big.lua", False),
    ("php", "php --version", "exec php -d memory_limit=-1 big.php", False),
    ("sqlite3", "sqlite3 --version", "exec sqlite3 :memory: < big.sql", True),
    ("sort", "sort --version", "sort --parallel=1 -S 40M text | cksum", False),
    ("gawk", "gawk --version", "exec gawk -f big.awk", False),
    ("mawk", "mawk -W version", "exec mawk -f big.awk", True),
    ("xz -d", "xz --version", "xz -dc text.xz | cksum", False),
    ("tar with gzip", "tar --version", "tar czf t.tgz text big.py && tar xzOf t.tgz | cksum", True),
    ("git (commit, gc, fsck)", "git --version", GIT, False),
    ("redis-server (BGSAVE)", "redis-server --version", REDIS, False),
    ("gcc -O2", "gcc --version", "gcc -O2 -c big.c -o big.o && cksum big.o", False),
    ("bash (pipes, subshells)", "bash --version", "exec bash big.sh", True),
    ("diff", "diff --version", "diff text other | cksum", False),
    ("jq", "jq --version", "exec jq '[.[] | .b | length] | add' big.json", False),
    ("ocaml", "ocaml -version", "exec ocaml big.ml", False),
    ("guile", "guile --version", "exec guile --no-auto-compile big.scm", False),
    ("sbcl", "sbcl --version", "exec sbcl --script big.lisp", False),
    ("java", "java -version", "exec java -Xmx64m A.java", False),
    ("rustc, by rustup's shim", "rustc --version", "rustc big.rs -o big-rs && ./big-rs", False),
    ("a program in Go", "go version", "exec ./big-go", False),
]


def write_inputs(folder):
    lines = "".join(f"{n * 7919 % 1000003:07} a line of text {n}\n" for n in range(200_000))
    files = {
        "text": lines,
        "other": lines.replace("999 a line", "999 another line"),
        "big.py": PYTHON,
        "forks.py": PYTHON_FORKS,
        "big.js": NODE,
        "big.pl": PERL,
        "big.rb": RUBY,
        "big.lua": LUA,
        "big.php": f"<?php {PHP}",
        "big.sql": SQL,
        "big.awk": AWK,
        "big.sh": BASH,
        "big.scm": GUILE,
        "big.lisp": LISP,
        "big.ml": OCAML,
        "A.java": JAVA,
        "big.go": GO,
        "big.rs": RUST,
        "big.json": json.dumps([{"a": n, "b": str(n) * 3} for n in range(150_000)]),
        "big.c": "".join(f"int f{n}(int a, int b) {{ for (int i = 0; i < b; i++) a = a * {n + 3} + (a >> {n % 13}) + i; return a; }}\n" for n in range(1500)),
    }
    for name, text in files.items():
        (folder / name).write_text(text)
    if shutil.which("xz"):
        subprocess.run(["xz", "-k", "-6", "text"], cwd=folder, check=False)
    if shutil.which("go"):
        environment = {**os.environ, "CGO_ENABLED": "0", "GOCACHE": str(folder / "go-cache")}
        subprocess.run(["go", "build", "-o", "big-go", "big.go"], cwd=folder, env=environment, check=False)


def version_of(command):
    shown = subprocess.run(["sh", "-c", f"{command} 2>&1"], capture_output=True, text=True, errors="replace")
    found = re.search(r"\d+\.\d[\w.+-]*", shown.stdout)
    return found.group(0) if found else "?"


def run(command, folder):
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    process = subprocess.Popen(command, cwd=folder, start_new_session=True, **pipes)
    try:
        out, error = process.communicate(timeout=120)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return "hangs", b"", "it did not end within 120 seconds"
    return process.returncode, out, error.decode(errors="replace")


def peak_of(plain):
    """Maximum resident size of a plain run in MiB."""
    return int(re.findall(r"peak (\d+)", plain[2])[-1]) / 1024


def row_of(name, version, script, ram, folder):
    """The cells of a row, and whether the program works."""
    plain = run(["/usr/bin/time", "-f", "peak %M", "sh", "-c", script], folder)
    if plain[0] != 0:
        return [name, version_of(version), f"SKIPPED: the plain run failed: {plain[2].strip()[:60]}"], True
    report = folder / "report.json"
    report.unlink(missing_ok=True)
    paged = run([MARGAY, "vm", "run", "--ram", ram, "--memory", "1G", "--json", str(report), "--", "sh", "-c", script], folder)
    numbers = json.loads(report.read_text()) if report.exists() else {}
    said = " ".join(line for line in paged[2].splitlines() if line.startswith("margay:") or "wrong" in line)
    heap = numbers.get("heap_bytes", 0) / (1 << 20)
    if plain[:2] == paged[:2] and numbers.get("swap_ins", 0) > 100:
        verdict = "works"
    elif plain[:2] == paged[:2]:
        is_small = heap < 10 and peak_of(plain) < 20
        verdict = "works; too small to be paged" if is_small else "works; most of its memory is not paged"
        verdict = verdict if numbers else "works; not paged"
    elif "call fails" in said or "pager could not" in said:
        verdict = "refused"
    else:
        verdict = f"FAILS ({paged[0]})"
        print(f"{name}: {paged[0]}, {paged[2][-600:]}\n{plain[1][-200:]}\n{paged[1][-200:]}", file=sys.stderr)
    cells = [
        name,
        version_of(version),
        verdict,
        str(numbers.get("processes", 0)),
        f"{heap:.0f}",
        f"{numbers.get('faults', 0):,}",
        f"{numbers.get('swap_ins', 0):,}",
        f"{peak_of(plain):.0f}",
        f"{numbers.get('peak_resident_bytes', 0) / (1 << 20):.0f}",
    ]
    return cells, not verdict.startswith("FAILS")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ram", default="6M", help="RAM for the heap of each process (default: 6M)")
    parser.add_argument("--only", help="names of programs, by comma; the start of a name is enough")
    parser.add_argument("--quick", action="store_true", help="only programs that take little time")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="margay-programs-", dir=os.environ.get("TMPDIR", "/var/tmp")))
    all_work = True
    try:
        write_inputs(folder)
        head = ["program", "version", "", "processes", "heaps, MiB", "faults", "from flash", "peak MiB, plain", "paged"]
        print("| " + " | ".join(head) + " |\n|" + "---|" * len(head), flush=True)
        for name, version, script, is_quick in PROGRAMS:
            if options.quick and not is_quick:
                continue
            if options.only and not any(name.startswith(only) for only in options.only.split(",")):
                continue
            if not shutil.which(version.split()[0]):
                print(f"SKIPPED: {version.split()[0]} is not installed", file=sys.stderr)
                continue
            cells, works = row_of(name, version, script, options.ram, folder)
            all_work &= works
            print("| " + " | ".join(cells) + " |", flush=True)
    finally:
        shutil.rmtree(folder)
    sys.exit(0 if all_work else 1)


main()
