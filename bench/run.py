#!/usr/bin/env python3
"""Strandline beside its peers, in turns. usage: run.py prepare | MEASUREMENT | stop   [--rounds N]

prepare      fetches Apache Kafka's jars with Maven, compiles the peers, starts one broker on loopback, and writes the topics
offline      the command and DumpLogSegments on the same segment files
live         the command and a Java consumer with Kafka's serde and cache on the same topic
cluster      the cluster layer: a snapshot of 1 000 topics of 10 partitions, look-ups in it, small requests; on a broker of its own
replay-100k  the manager reads 252 000 events about 100 000 segments
replay-1m    the manager reads 2.52 million events about a million segments, which are written first (minutes)
lookup       who serves an offset, among 10 000 and 100 000 segments
publish      events of 93 bytes into 50 partitions: one after the other, with 1 000 on their way, through the manager
stop         ends the brokers

Everything that is made lies below $BENCH_TMP (default: bench/target/data). A row whose program is not there is left out.
Each round runs every row once and starts one row further along, so that a drift of the machine meets all of them."""
import argparse, fcntl, glob, json, os, shutil, socket, statistics, subprocess, sys, time

HERE = os.path.dirname(os.path.abspath(__file__))
TMP = os.environ.get("BENCH_TMP") or os.path.join(HERE, "target", "data")
LIBS = os.environ.get("KAFKA_LIBS") or os.path.join(TMP, "libs")
PORT = int(os.environ.get("BENCH_PORT", "29092"))
BROKER = os.path.join(TMP, "broker")
DATA = os.path.join(BROKER, "data")
# The many topics of the cluster layer's rows would slow the others down.
CLUSTER_BROKER, CLUSTER_PORT = os.path.join(TMP, "broker-cluster"), PORT + 100
CLASS_PATH = os.path.join(TMP, "classes") + ":" + os.path.join(LIBS, "*")
BENCH = "org.apache.kafka.server.log.remote.metadata.storage.Bench"
STRANDLINE = os.environ.get("STRANDLINE") or os.path.join(HERE, "..", "target", "release", "strandline")
STRANDLINE_BENCH = os.environ.get("STRANDLINE_BENCH") or os.path.join(HERE, "..", "target", "release", "strandline-bench")
LIMITS, CLUSTER, RDKAFKA, RSKAFKA, KRABKA = (
    os.path.join(HERE, "target", "release", name)
    for name in ("bench-limits", "bench-cluster", "peer-rdkafka", "peer-rskafka", "peer-krabka"))
FRANZ_GO = os.path.join(TMP, "peer-franz-go")
PIECE = bytearray(1 << 20)
TOPICS = {"single": "__remote_log_metadata_bench_single", "batched": "__remote_log_metadata_bench_batched"}
# Kafka's own manager reads one topic, of this name.
MANAGER_TOPIC, PUBLISH_TOPIC, WRITE_TOPIC = "__remote_log_metadata", "bench.publish", "bench.write"


def run(*command, env=None, limit=600):
    subprocess.run(command, check=True, timeout=limit, env={**os.environ, **(env or {})})


def java(*arguments, heap="1g"):
    logging = os.path.join(HERE, "java", "log4j2.yaml")
    return ["java", f"-Xmx{heap}", f"-Dlog4j2.configurationFile={logging}", "-cp", CLASS_PATH, *arguments]


def listening(port=PORT):
    with socket.socket() as s:
        s.settimeout(1)
        return s.connect_ex(("127.0.0.1", port)) == 0


def start(directory=BROKER, port=PORT):
    os.makedirs(directory, exist_ok=True)
    properties, data = os.path.join(directory, "server.properties"), os.path.join(directory, "data")
    listener = f"PLAINTEXT://127.0.0.1:{port}"
    with open(properties, "w") as f:
        f.write("\n".join([
            "process.roles=broker,controller", "node.id=1", f"controller.quorum.voters=1@127.0.0.1:{port + 1}",
            f"listeners={listener},CONTROLLER://127.0.0.1:{port + 1}", f"advertised.listeners={listener}",
            "controller.listener.names=CONTROLLER", "inter.broker.listener.name=PLAINTEXT", f"log.dirs={data}",
            "offsets.topic.replication.factor=1", "auto.create.topics.enable=false", ""]))
    if not os.path.exists(os.path.join(data, "meta.properties")):
        run(*java("kafka.tools.StorageTool", "format", "-t", "AAAAAAAAAAAAAAAAAAAAAQ", "-c", properties))
    log = open(os.path.join(directory, "out.log"), "ab")
    process = subprocess.Popen(java("kafka.Kafka", properties), stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True)
    with open(os.path.join(directory, "pid"), "w") as f:
        f.write(str(process.pid))
    deadline = time.monotonic() + 60
    while not listening(port):
        if process.poll() is not None or time.monotonic() > deadline:
            sys.exit(f"the broker did not start: see {directory}/out.log")
        time.sleep(0.2)


def prepare():
    if not os.path.isdir(LIBS):
        run("mvn", "-q", "-B", "-f", os.path.join(HERE, "java", "pom.xml"), "dependency:copy-dependencies", f"-DoutputDirectory={LIBS}")
    sources = glob.glob(os.path.join(HERE, "java", "**", "*.java"), recursive=True)
    run("javac", "-nowarn", "-cp", os.path.join(LIBS, "*"), "-d", os.path.join(TMP, "classes"), *sources)
    run("cargo", "build", "--release", "--manifest-path", os.path.join(HERE, "Cargo.toml"))
    # One of the peers asks for a newer compiler than it needs.
    run("cargo", "build", "--release", "--ignore-rust-version", "--manifest-path", os.path.join(HERE, "peers", "Cargo.toml"), "--target-dir", os.path.join(HERE, "target"), limit=3600)
    run("cargo", "build", "--release", "--manifest-path", os.path.join(HERE, "..", "Cargo.toml"), "--package", "strandline", "--package", "strandline-bench")
    if shutil.which("go"):
        run("go", "-C", os.path.join(HERE, "go"), "build", "-o", FRANZ_GO, ".")
    if not listening():
        start()
    for layout, topic in TOPICS.items():
        provide(topic, "gen", "100000", "20", "10", layout)


def provide(topic, *how):
    """Has Java make a topic that is not there."""
    if not os.path.isdir(os.path.join(DATA, topic + "-0")):
        run(*java(BENCH, *how), env={"BOOTSTRAP": f"127.0.0.1:{PORT}", "TOPIC": topic})


def stop():
    for directory, port in ((BROKER, PORT), (CLUSTER_BROKER, CLUSTER_PORT)):
        if not listening(port):
            continue
        with open(os.path.join(directory, "pid")) as f:
            os.kill(int(f.read()), 15)
        deadline = time.monotonic() + 60
        while listening(port) and time.monotonic() < deadline:
            time.sleep(0.2)


def offline(topic):
    files = sorted(glob.glob(os.path.join(DATA, topic + "-[0-9]*", "*.log")))
    source = ["--log-dir", DATA, "--metadata-topic", topic]
    dump = java("org.apache.kafka.tools.DumpLogSegments", "--remote-log-metadata-decoder", "--files", ",".join(files))
    return sum(map(os.path.getsize, files)), [
        ("DumpLogSegments --remote-log-metadata-decoder", dump),
        ("strandline events --log-dir -o jsonl", [STRANDLINE, "events", *source, "-o", "jsonl"]),
        ("strandline audit --log-dir", [STRANDLINE, "audit", *source, "--fail-on", "never"]),
        ("floor: read and check CRC-32C, one thread", [LIMITS, "files"]),
    ]


def live(topic):
    files = glob.glob(os.path.join(DATA, topic + "-[0-9]*", "*.log"))
    bootstrap = ["-b", f"127.0.0.1:{PORT}", "--metadata-topic", topic]
    return sum(map(os.path.getsize, files)), [
        ("Java consumer, Kafka's serde and cache", java(BENCH, "replay")),
        ("the same, max.poll.records=100000", ["env", "MAX_POLL=100000", *java(BENCH, "replay")]),
        ("strandline audit -b", [STRANDLINE, "audit", *bootstrap, "--fail-on", "never"]),
        ("strandline events -b -o jsonl", [STRANDLINE, "events", *bootstrap, "-o", "jsonl"]),
        ("floor: raw Fetch, CRC-32C, record walk", [LIMITS, "fetch"]),
    ]


def once(command, env):
    """Wall and CPU milliseconds, peak memory in MiB, and what the row itself says: output goes to a pipe that is read."""
    began = time.monotonic()
    process = subprocess.Popen(command, env={**os.environ, **env}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, bufsize=0)
    # The reader's own work is not what is measured: few large pieces, of which the end is kept. One buffer serves all rows,
    # since a child's peak memory counts what this process held when it started the child.
    fcntl.fcntl(process.stdout, fcntl.F_SETPIPE_SZ, len(PIECE))
    tail = b""
    while size := process.stdout.readinto(PIECE):
        tail = (tail + PIECE[max(0, size - 4096):size])[-4096:]
    problem = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = status
    if status != 0:
        sys.exit(f"{command[:4]} ended with status {os.waitstatus_to_exitcode(status)}: {problem[-2000:].decode(errors='replace')}")
    row = {"wall": (time.monotonic() - began) * 1e3, "cpu": (usage.ru_utime + usage.ru_stime) * 1e3, "rss": usage.ru_maxrss / 1024}
    for line in reversed(tail.decode(errors="replace").splitlines()):
        if line.startswith("{") and '"peer":' in line:
            row.update(json.loads(line))
            break
    return row


def turns(rows, env, rounds):
    """What each row gave, round by round."""
    rows = [(name, command) for name, command in rows if command[0] in ("java", "env") or os.path.exists(command[0])]
    results = {name: [] for name, _ in rows}
    for turn in range(rounds):
        k = turn % len(rows)
        for name, command in rows[k:] + rows[:k]:
            results[name].append(once(command, env))
    return results


def median(got, unit):
    return statistics.median(row[unit] for row in got)


def head(title, rounds):
    print(f"\n#### {title}: {rounds} rounds in turns, load average {os.getloadavg()[0]:.1f}\n")


def measure(make, rounds):
    if not os.path.exists(STRANDLINE) or not os.path.exists(LIMITS) or not os.path.isdir(DATA):
        sys.exit("run.py prepare comes first")
    for layout, topic in TOPICS.items():
        size, rows = make(topic)
        results = turns(rows, {"BOOTSTRAP": f"127.0.0.1:{PORT}", "TOPIC": topic, "DATA_DIR": DATA}, rounds)
        first = results[rows[0][0]]
        head(f"{layout}: {size / 1e6:.1f} MB", rounds)
        print("| what | wall ms, median (best) | times faster | CPU ms | times less CPU | MB/s | peak MiB | after start-up ms |\n|---|---|---|---|---|---|---|---|")
        for name, got in results.items():
            wall, cpu = median(got, "wall"), median(got, "cpu")
            inner = f"{median(got, 'ms'):,.0f}" if "ms" in got[0] else ""
            print(f"| {name} | {wall:,.0f} ({min(r['wall'] for r in got):,.0f}) | {median(first, 'wall') / wall:.1f} | {cpu:,.0f} | {median(first, 'cpu') / cpu:.1f} | "
                  f"{size / 1e3 / wall:,.0f} | {max(r['rss'] for r in got):,.0f} | {inner} |")


def cluster(rounds):
    if not listening(CLUSTER_PORT):
        start(CLUSTER_BROKER, CLUSTER_PORT)
    env = {"BOOTSTRAP": f"127.0.0.1:{CLUSTER_PORT}"}
    run(CLUSTER, "topics", "1000", "10", env=env)
    small, in_flight = ("produce", "bench.small", "20000"), ("1", "16")
    for title, rows in [
        ("snapshot of 1 000 topics of 10 partitions", [
            ("Java AdminClient, listTopics and describeTopics", java(BENCH, "snapshot")),
            ("rdkafka 0.39, fetch_metadata", [RDKAFKA, "snapshot"]),
            ("rskafka 0.6, list_topics", [RSKAFKA, "snapshot"]),
            ("krabka-client-core 0.7.1, refresh_metadata_with", [KRABKA, "snapshot"]),
            ("strandline, start and refresh_all", [CLUSTER, "snapshot"])]),
        *[(f"20 000 Produce requests of one record of 100 bytes, {n} in flight", [
            ("rdkafka 0.39", [RDKAFKA, *small, n]),
            ("strandline, Cluster::send", [CLUSTER, *small, n])]) for n in in_flight],
    ]:
        of_ms(title, turns(rows, env, rounds), rounds)
    print("\n#### look-up of a leader\n")
    sys.stdout.flush()
    run(CLUSTER, "lookup", env=env)


def of_ms(title, results, rounds):
    """A table of the times that the rows tell of themselves."""
    head(title, rounds)
    first = None
    print("| what | ms, median (best) | times faster | CPU ms of the process | peak MiB |\n|---|---|---|---|---|")
    for name, got in results.items():
        ms = median(got, "ms")
        first = first or ms
        print(f"| {name} | {ms:,.1f} ({min(r['ms'] for r in got):,.1f}) | {first / ms:.1f} | {median(got, 'cpu'):,.0f} | {max(r['rss'] for r in got):,.1f} |")


def replay(topic, heap, users, rounds):
    rows = [
        ("Java consumer, Kafka's serde and cache", java(BENCH, "replay", heap=heap)),
        ("Java TopicBasedRemoteLogMetadataManager", java(BENCH, "manager", *users, heap=heap)),
        ("rdkafka 0.39, consumed only", [RDKAFKA, "consume"]),
        ("rskafka 0.6, consumed only", [RSKAFKA, "consume"]),
        ("franz-go 1.22, consumed only", [FRANZ_GO, "consume"]),
        ("strandline, the manager", [STRANDLINE_BENCH, "replay"]),
        ("floor: raw Fetch, CRC-32C, record walk", [LIMITS, "fetch"]),
    ]
    if topic != MANAGER_TOPIC:
        del rows[1]
    results = turns(rows, {"BOOTSTRAP": f"127.0.0.1:{PORT}", "TOPIC": topic, "DATA_DIR": DATA}, rounds)
    known = {row["events"] for got in results.values() for row in got if "events" in row}
    of_ms(f"replay of {' / '.join(map(str, sorted(known)))} events", results, rounds)


def lookup(rounds):
    for segments in ("10000", "100000"):
        rows = [
            ("Java RemoteLogMetadataCache", java(BENCH, "lookup", segments, heap="2g"), "ns_min"),
            ("strandline, the index", [STRANDLINE_BENCH, "lookup", segments], "ns_min"),
            ("strandline, the manager, by reference", None, "ns_min_manager"),
            ("strandline, the manager, a copy", None, "ns_min_manager_owned"),
        ]
        results = turns([(name, command) for name, command, _ in rows if command], {}, rounds)
        head(f"look-up among {int(segments):,} segments", rounds)
        print("| what | ns, median (best) | times faster | bytes per segment |\n|---|---|---|---|")
        first = median(results[rows[0][0]], "ns_min")
        for name, _, unit in rows:
            got = results.get(name, results[rows[1][0]])
            size = f"{median(got, 'bytes_per_segment'):,.0f}" if unit == "ns_min" else ""
            print(f"| {name} | {median(got, unit):,.0f} ({min(r[unit] for r in got):,.0f}) | {first / median(got, unit):.1f} | {size} |")


def publish(rounds):
    provide(PUBLISH_TOPIC, "topic")
    without_linger = ["env", "LINGER=0"]
    one, many = ["publish", "one", "2000"], ["publish", "many", "100000"]
    for title, topic, rows in [
        ("2 000 events, each awaited", PUBLISH_TOPIC, [
            ("Java producer, linger 5 ms (its default)", java(BENCH, *one)),
            ("Java producer, linger 0", without_linger + java(BENCH, *one)),
            ("rdkafka 0.39, linger 0", [*without_linger, RDKAFKA, *one]),
            ("franz-go 1.22", [FRANZ_GO, *one]),
            ("strandline, the producer", [STRANDLINE_BENCH, "publish", "one", "2000"])]),
        ("100 000 events, 1 000 on their way", PUBLISH_TOPIC, [
            ("Java producer, linger 5 ms", java(BENCH, *many)),
            ("rdkafka 0.39, linger 5 ms", [RDKAFKA, *many]),
            ("franz-go 1.22", [FRANZ_GO, *many]),
            ("strandline, the producer", [STRANDLINE_BENCH, "publish", "many", "100000"])]),
        ("2 000 events through the manager, each awaited until it can be read", WRITE_TOPIC, [
            ("strandline, the manager", [STRANDLINE_BENCH, "write", "2000"])]),
    ]:
        results = turns(rows, {"BOOTSTRAP": f"127.0.0.1:{PORT}", "TOPIC": topic}, rounds)
        head(title, rounds)
        print("| what | events/s, median (best) | times faster | p50 µs | p99 µs | CPU ms of the process | peak MiB |\n|---|---|---|---|---|---|---|")
        first = None
        for name, got in results.items():
            events_s = median(got, "events_s")
            first = first or events_s
            waits = " | ".join(f"{median(got, unit):,.0f}" if unit in got[0] else "" for unit in ("p50_us", "p99_us"))
            print(f"| {name} | {events_s:,.0f} ({max(r['events_s'] for r in got):,.0f}) | {events_s / first:.1f} | {waits} | {median(got, 'cpu'):,.0f} | {max(r['rss'] for r in got):,.1f} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["prepare", "offline", "live", "cluster", "replay-100k", "replay-1m", "lookup", "publish", "stop"])
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    os.makedirs(TMP, exist_ok=True)
    if arguments.what not in ("prepare", "cluster", "lookup", "stop") and not listening():
        start()
    match arguments.what:
        case "prepare":
            prepare()
        case "offline":
            measure(offline, arguments.rounds)
        case "live":
            measure(live, arguments.rounds)
        case "replay-100k":
            replay(TOPICS["single"], "1g", (), arguments.rounds)
        case "replay-1m":
            provide(MANAGER_TOPIC, "gen", "1000000", "100", "20", "single")
            replay(MANAGER_TOPIC, "4g", ("100", "20"), arguments.rounds)
        case "lookup":
            lookup(arguments.rounds)
        case "publish":
            publish(arguments.rounds)
        case "cluster":
            cluster(arguments.rounds)
        case "stop":
            stop()


main()
