// Peer benchmark driver for Apache Kafka's own classes. It sits in this package because the lookups of
// RemoteLogMetadataCache and RemotePartitionMetadataStore are package-private.
// Each sub-command prints one JSON object on its last line .
package org.apache.kafka.server.log.remote.metadata.storage;

import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.*;
import org.apache.kafka.common.serialization.*;
import org.apache.kafka.server.log.remote.metadata.storage.serialization.RemoteLogMetadataSerde;
import org.apache.kafka.server.log.remote.storage.*;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata.CustomMetadata;

import java.lang.management.ManagementFactory;
import java.nio.file.*;
import java.time.Duration;
import java.util.*;
import java.util.concurrent.*;
import java.util.concurrent.atomic.*;
import java.util.function.IntFunction;

public class Bench {
    static final String BS = System.getenv().getOrDefault("BOOTSTRAP", "127.0.0.1:29092");
    static final String TOPIC = System.getenv().getOrDefault("TOPIC", "__remote_log_metadata_bench_100000");
    static final int MP = 50;

    public static void main(String[] a) throws Exception {
        switch (a[0]) {
            // gen SEGMENTS TOPICS PARTITIONS single|batched
            case "gen" -> gen(Integer.parseInt(a[1]), Integer.parseInt(a[2]), Integer.parseInt(a[3]), a[4]);
            case "replay" -> replay();                                   // consumer + serde + cache
            case "manager" -> manager(Integer.parseInt(a[1]), Integer.parseInt(a[2]));  // TOPICS PARTITIONS of the generated topic
            case "lookup" -> lookup(Integer.parseInt(a[1]));             // SEGMENTS in one cache
            case "publish" -> publish(a[1], Integer.parseInt(a[2]));     // one|many EVENTS
            case "topic" -> { try (Admin ad = Admin.create(props())) { mk(ad, TOPIC, MP); } }
            case "snapshot" -> snapshot();                               // names, then a description of all of them
            default -> throw new IllegalArgumentException(a[0]);
        }
        System.out.flush();
        System.exit(0);
    }

    // ---------------------------------------------------------------- helpers
    static Properties props(Object... kv) {
        Properties p = new Properties();
        p.put("bootstrap.servers", BS);
        for (int i = 0; i < kv.length; i += 2) p.put(kv[i], String.valueOf(kv[i + 1]));
        return p;
    }

    static long hwmKb() throws Exception {
        for (String l : Files.readAllLines(Path.of("/proc/self/status")))
            if (l.startsWith("VmHWM")) return Long.parseLong(l.replaceAll("\\D", ""));
        return -1;
    }

    static double live() throws Exception {
        for (int i = 0; i < 3; i++) { System.gc(); Thread.sleep(50); }
        Runtime r = Runtime.getRuntime();
        return (r.totalMemory() - r.freeMemory()) / 1048576.0;
    }

    static double sinceJvmStartMs() {
        return System.currentTimeMillis() - ManagementFactory.getRuntimeMXBean().getStartTime();
    }

    static void out(String peer, Object... kv) {
        StringBuilder b = new StringBuilder("{\"peer\":\"" + peer + "\"");
        for (int i = 0; i < kv.length; i += 2) {
            Object v = kv[i + 1];
            b.append(",\"").append(kv[i]).append("\":");
            b.append(v instanceof String ? "\"" + v + "\"" : v instanceof Double d ? String.format(Locale.ROOT, "%.3f", d) : v);
        }
        System.out.println(b.append("}"));
    }

    static void snapshot() throws Exception {
        long t0 = System.nanoTime();
        try (Admin admin = Admin.create(props())) {
            Set<String> names = admin.listTopics(new ListTopicsOptions().listInternal(true)).names().get();
            int partitions = 0;
            Map<String, TopicDescription> held = admin.describeTopics(names).allTopicNames().get();
            for (TopicDescription topic : held.values()) partitions += topic.partitions().size();
            if (held.size() < 1_000 || partitions < 10_000) throw new IllegalStateException(held.size() + " " + partitions);
            out("java-AdminClient", "topics", held.size(), "partitions", partitions, "ms", (System.nanoTime() - t0) / 1e6);
        }
    }

    static TopicIdPartition tip(int t, int p) {
        byte[] h = ("bench-topic-" + t).getBytes();
        UUID u = UUID.nameUUIDFromBytes(h);
        return new TopicIdPartition(new Uuid(u.getMostSignificantBits(), u.getLeastSignificantBits()), p, "orders.events.v" + t);
    }

    // ---------------------------------------------------------------- generator
    /** Calls sink for each event, in the order a cluster would write it; per user partition the order is legal. */
    static long events(int segments, int topics, int partitions, BiSink sink) throws Exception {
        Random r = new Random(42);
        int tps = topics * partitions;
        int per = Math.max(1, segments / tps);
        TopicIdPartition[] tip = new TopicIdPartition[tps];
        for (int i = 0; i < tps; i++) tip[i] = tip(i / partitions, i % partitions);
        long[] next = new long[tps];
        int[] epoch = new int[tps];
        int keep = Math.max(1, (int) (per * 0.73));
        RemoteLogSegmentId[][] ids = new RemoteLogSegmentId[tps][per];
        boolean[][] finished = new boolean[tps][per];
        long now = 1_790_000_000_000L;
        long n = 0;
        for (int s = 0; s < per; s++) {
            for (int t = 0; t < tps; t++) {
                now += 37;
                RemoteLogSegmentId id = new RemoteLogSegmentId(tip[t], new Uuid(r.nextLong(), r.nextLong()));
                ids[t][s] = id;
                long start = next[t], end = start + 1000 + r.nextInt(9000);
                NavigableMap<Integer, Long> le = new TreeMap<>();
                le.put(epoch[t], start);
                if (per < 8 || r.nextInt(Math.max(2, per / 5)) == 0) {     // about five leader changes a partition
                    epoch[t]++;
                    le.put(epoch[t], start + (end - start) / 2);
                }
                int broker = 1 + r.nextInt(6);
                sink.accept(tip[t], new RemoteLogSegmentMetadata(id, start, end, now - 60_000, broker, now,
                    900_000_000 + r.nextInt(100_000_000), Optional.empty(), RemoteLogSegmentState.COPY_SEGMENT_STARTED, le, r.nextInt(20) != 0));
                n++;
                if (r.nextInt(100) != 0) {                                 // 1 % stay in COPY_SEGMENT_STARTED
                    Optional<CustomMetadata> cm = Optional.empty();
                    if (r.nextInt(10) == 0) { byte[] c = new byte[16 + r.nextInt(48)]; r.nextBytes(c); cm = Optional.of(new CustomMetadata(c)); }
                    sink.accept(tip[t], new RemoteLogSegmentMetadataUpdate(id, now + 900, cm, RemoteLogSegmentState.COPY_SEGMENT_FINISHED, broker));
                    finished[t][s] = true;
                    n++;
                    next[t] = end + 1;
                }                                                          // a dangling copy is retried at the same offset
                int old = s - keep;
                if (old >= 0 && finished[t][old]) {
                    sink.accept(tip[t], new RemoteLogSegmentMetadataUpdate(ids[t][old], now + 1000, Optional.empty(), RemoteLogSegmentState.DELETE_SEGMENT_STARTED, broker));
                    n++;
                    if (r.nextInt(50) != 0) {                              // 2 % of deletes dangle
                        sink.accept(tip[t], new RemoteLogSegmentMetadataUpdate(ids[t][old], now + 1100, Optional.empty(), RemoteLogSegmentState.DELETE_SEGMENT_FINISHED, broker));
                        n++;
                    }
                }
            }
        }
        return n;
    }

    interface BiSink { void accept(TopicIdPartition tp, RemoteLogMetadata m) throws Exception; }

    static void mk(Admin ad, String name, int parts) throws Exception {
        NewTopic nt = new NewTopic(name, parts, (short) 1).configs(Map.of("cleanup.policy", "delete", "retention.ms", "-1"));
        ad.createTopics(List.of(nt)).all().get(60, TimeUnit.SECONDS);
        // Wait until every leader serves: a new partition that refuses a producer's first batch and takes its second never recovers.
        Map<TopicPartition, OffsetSpec> q = new HashMap<>();
        for (int p = 0; p < parts; p++) q.put(new TopicPartition(name, p), OffsetSpec.latest());
        ad.listOffsets(q).all().get(60, TimeUnit.SECONDS);
    }

    static void gen(int segments, int topics, int partitions, String layout) throws Exception {
        try (Admin ad = Admin.create(props())) { mk(ad, TOPIC, MP); }
        boolean single = layout.equals("single");
        RemoteLogMetadataSerde serde = new RemoteLogMetadataSerde();
        RemoteLogMetadataTopicPartitioner part = new RemoteLogMetadataTopicPartitioner(MP);
        AtomicLong bytes = new AtomicLong();
        AtomicReference<Exception> err = new AtomicReference<>();
        long t0 = System.nanoTime();
        long n;
        // batch.size 1 gives one record a batch, which is what a real cluster's awaited, sparse publishes give.
        try (KafkaProducer<byte[], byte[]> prod = new KafkaProducer<>(props("acks", "all", "enable.idempotence", true,
                "batch.size", single ? 1 : 65536, "linger.ms", single ? 0 : 50, "buffer.memory", 64 << 20, "delivery.timeout.ms", 1_800_000), new ByteArraySerializer(), new ByteArraySerializer())) {
            n = events(segments, topics, partitions, (tp, m) -> {
                byte[] v = serde.serialize(m);
                bytes.addAndGet(v.length);
                prod.send(new ProducerRecord<>(TOPIC, part.metadataPartition(tp), null, v), (md, e) -> { if (e != null) err.set(e); });
            });
            prod.flush();
        }
        if (err.get() != null) throw err.get();
        out("gen", "topic", TOPIC, "segments", segments, "events", n, "value_bytes", bytes.get(), "layout", layout, "ms", (System.nanoTime() - t0) / 1e6);
    }

    // ---------------------------------------------------------------- replay
    static KafkaConsumer<byte[], byte[]> consumer() {
        return new KafkaConsumer<>(props("enable.auto.commit", false, "auto.offset.reset", "earliest", "exclude.internal.topics", false,
            "max.poll.records", Integer.parseInt(System.getenv().getOrDefault("MAX_POLL", "500"))), new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    interface Rec { void on(byte[] v); }

    static long drain(KafkaConsumer<byte[], byte[]> c, Rec rec) {
        List<TopicPartition> tps = new ArrayList<>();
        for (var pi : c.partitionsFor(TOPIC)) tps.add(new TopicPartition(TOPIC, pi.partition()));
        c.assign(tps);
        c.seekToBeginning(tps);
        Map<TopicPartition, Long> end = c.endOffsets(tps);
        Set<TopicPartition> open = new HashSet<>();
        for (var e : end.entrySet()) if (e.getValue() > 0) open.add(e.getKey());
        long n = 0;
        while (!open.isEmpty()) {
            ConsumerRecords<byte[], byte[]> rs = c.poll(Duration.ofMillis(1000));
            for (TopicPartition tp : rs.partitions()) {
                List<ConsumerRecord<byte[], byte[]>> l = rs.records(tp);
                for (ConsumerRecord<byte[], byte[]> r : l) rec.on(r.value());
                n += l.size();
                if (l.get(l.size() - 1).offset() + 1 >= end.get(tp)) open.remove(tp);
            }
        }
        return n;
    }

    static void replay() throws Exception {
        long t0 = System.nanoTime();
        RemoteLogMetadataSerde serde = new RemoteLogMetadataSerde();
        RemotePartitionMetadataStore store = new RemotePartitionMetadataStore();
        Set<TopicIdPartition> seen = new HashSet<>();
        long n;
        try (KafkaConsumer<byte[], byte[]> c = consumer()) {
            n = drain(c, v -> {
                RemoteLogMetadata m = serde.deserialize(v);
                if (seen.add(m.topicIdPartition())) store.maybeLoadPartition(m.topicIdPartition());
                store.handleRemoteLogMetadata(m);
            });
            double ms = (System.nanoTime() - t0) / 1e6;
            double jvm = sinceJvmStartMs();
            long hwm = hwmKb();
            long segs = 0;
            for (TopicIdPartition tp : seen) { store.markInitialized(tp); var it = store.listRemoteLogSegments(tp); while (it.hasNext()) { it.next(); segs++; } }
            out("java-consumer+serde+cache", "events", n, "ms", ms, "jvm_ms", jvm, "hwm_kb", hwm, "segments", segs, "live_mb", live());
            java.lang.ref.Reference.reachabilityFence(store);
        }
    }

    // ---------------------------------------------------------------- manager
    /** Kafka's own manager, which reads one topic alone: __remote_log_metadata. */
    static void manager(int topics, int partitions) throws Exception {
        Map<String, Object> config = new HashMap<>();
        config.put("remote.log.metadata.common.client.bootstrap.servers", BS);
        config.put("remote.log.metadata.topic.num.partitions", MP);
        config.put("remote.log.metadata.topic.replication.factor", (short) 1);
        config.put("remote.log.metadata.topic.min.isr", (short) 1);
        config.put("broker.id", 77);
        config.put("log.dir", Files.createTempDirectory("manager").toString());
        Set<TopicIdPartition> served = new HashSet<>();
        for (int t = 0; t < topics; t++) for (int p = 0; p < partitions; p++) served.add(tip(t, p));
        long t0 = System.nanoTime();
        TopicBasedRemoteLogMetadataManager manager = new TopicBasedRemoteLogMetadataManager();
        manager.configure(config);
        manager.onBrokerReady();
        while (!manager.isInitialized()) Thread.sleep(1);
        manager.onPartitionLeadershipChanges(served, Set.of());
        Set<TopicIdPartition> open = new HashSet<>(served);
        while (!open.isEmpty()) { open.removeIf(manager::isReady); if (!open.isEmpty()) Thread.sleep(2); }
        double ms = (System.nanoTime() - t0) / 1e6;
        long hwm = hwmKb(), segments = 0;
        for (TopicIdPartition tp : served) for (var it = manager.listRemoteLogSegments(tp); it.hasNext(); it.next()) segments++;
        out("java-manager", "ms", ms, "hwm_kb", hwm, "segments", segments, "live_mb", live());
        java.lang.ref.Reference.reachabilityFence(manager);
    }

    // ---------------------------------------------------------------- lookup
    /** Segments of 1 000 to 9 999 offsets in five leader epochs; every question is about an offset that a segment serves. */
    static void lookup(int segments) throws Exception {
        double before = live();
        RemoteLogMetadataCache cache = new RemoteLogMetadataCache();
        Random r = new Random(7);
        long start = 0;
        int epoch = 0;
        List<long[]> ranges = new ArrayList<>();                         // epoch, first and last offset
        for (int s = 0; s < segments; s++) {
            long end = start + 999 + r.nextInt(9_000);
            NavigableMap<Integer, Long> epochs = new TreeMap<>(Map.of(epoch, start));
            if ((s + 1) % (segments / 5) == 0 && s + 1 < segments) {
                long split = start + (end - start) / 2;
                epochs.put(epoch + 1, split);
                ranges.add(new long[]{epoch++, start, split - 1});
                ranges.add(new long[]{epoch, split, end});
            } else ranges.add(new long[]{epoch, start, end});
            RemoteLogSegmentId id = new RemoteLogSegmentId(tip(0, 0), new Uuid(r.nextLong(), r.nextLong()));
            cache.addCopyInProgressSegment(new RemoteLogSegmentMetadata(id, start, end, 1L, 1, 1L, 1 << 20, epochs));
            cache.updateRemoteLogSegmentMetadata(new RemoteLogSegmentMetadataUpdate(id, 2L, Optional.empty(), RemoteLogSegmentState.COPY_SEGMENT_FINISHED, 1));
            start = end + 1;
        }
        double after = live();
        int questions = 1 << 20;
        int[] epochs = new int[questions];
        long[] offsets = new long[questions];
        for (int i = 0; i < questions; i++) {
            long[] range = ranges.get(r.nextInt(ranges.size()));
            epochs[i] = (int) range[0];
            offsets[i] = range[1] + (long) (r.nextDouble() * (range[2] - range[1] + 1));
        }
        double best = Double.MAX_VALUE;
        for (int round = 0; round < 8; round++) {
            int hits = 0;
            long t0 = System.nanoTime();
            for (int i = 0; i < questions; i++) if (cache.remoteLogSegmentMetadata(epochs[i], offsets[i]).isPresent()) hits++;
            double ns = (System.nanoTime() - t0) / (double) questions;
            if (hits != questions) throw new IllegalStateException(questions - hits + " misses");
            if (round >= 3) best = Math.min(best, ns);
        }
        out("java-cache", "segments", segments, "ns_min", best, "bytes_per_segment", (after - before) * 1048576 / segments);
    }

    // ---------------------------------------------------------------- publish
    /** 93 bytes a value, pinned to 50 partitions in turns, after 500 events of warm-up. */
    static void publish(String mode, int n) throws Exception {
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(props("acks", "all", "enable.idempotence", true,
                "linger.ms", System.getenv().getOrDefault("LINGER", "5")), new ByteArraySerializer(), new ByteArraySerializer())) {
            IntFunction<ProducerRecord<byte[], byte[]>> record = i ->
                new ProducerRecord<>(TOPIC, i * 7 % MP, null, java.nio.ByteBuffer.allocate(93).putLong(i).array());
            for (int i = 0; i < 500; i++) producer.send(record.apply(i)).get();
            long t0 = System.nanoTime();
            if (mode.equals("one")) {
                double[] us = new double[n];
                for (int i = 0; i < n; i++) {
                    long sent = System.nanoTime();
                    producer.send(record.apply(i)).get();
                    us[i] = (System.nanoTime() - sent) / 1e3;
                }
                double eventsS = n / ((System.nanoTime() - t0) / 1e9);
                Arrays.sort(us);
                out("java-producer", "events_s", eventsS, "p50_us", us[n / 2], "p99_us", us[n * 99 / 100], "hwm_kb", hwmKb());
                return;
            }
            Semaphore places = new Semaphore(1_000);
            AtomicReference<Exception> failed = new AtomicReference<>();
            for (int i = 0; i < n; i++) {
                places.acquire();
                producer.send(record.apply(i), (metadata, e) -> { if (e != null) failed.set(e); places.release(); });
            }
            places.acquire(1_000);
            double eventsS = n / ((System.nanoTime() - t0) / 1e9);
            if (failed.get() != null) throw failed.get();
            out("java-producer", "events_s", eventsS, "hwm_kb", hwmKb());
        }
    }
}
