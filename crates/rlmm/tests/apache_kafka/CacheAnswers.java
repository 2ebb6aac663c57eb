// In the package of Kafka's store and cache, whose methods are visible there alone.
package org.apache.kafka.server.log.remote.metadata.storage;

import java.io.PrintStream;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.stream.Collectors;

import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.server.log.remote.metadata.storage.serialization.RemoteLogMetadataSerde;
import org.apache.kafka.server.log.remote.storage.RemoteLogMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentId;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadataUpdate;
import org.apache.kafka.server.log.remote.storage.RemotePartitionDeleteMetadata;
import org.apache.kafka.server.log.remote.storage.RemotePartitionDeleteState;

/**
 * Reads a metadata topic up to its present end with Kafka's own consumer and codec, gives every event to Kafka's own
 * store and cache as a broker does that holds every partition, and prints what they answer.
 *
 * Usage: CacheAnswers BOOTSTRAP TOPIC. One line of JSON per question; before them where the topic ended, and what
 * would have ended a broker's reading.
 */
public final class CacheAnswers {
    private final PrintStream out;
    private final RemoteLogMetadataSerde serde = new RemoteLogMetadataSerde();
    private final RemotePartitionMetadataStore store = new RemotePartitionMetadataStore();
    /** What the store keeps for itself, once more: it shows none of its insides. Null once it is deleted. */
    private final Map<TopicIdPartition, RemoteLogMetadataCache> caches = new HashMap<>();

    private CacheAnswers(PrintStream out) {
        this.out = out;
    }

    public static void main(String[] arguments) throws Exception {
        try (PrintStream out = new PrintStream(System.out, false, "UTF-8")) {
            CacheAnswers answers = new CacheAnswers(out);
            answers.read(arguments[0], arguments[1]);
            answers.answer();
        }
    }

    private void read(String bootstrap, String topic) {
        Map<String, Object> config = Map.of("bootstrap.servers", bootstrap, "enable.auto.commit", false);
        try (KafkaConsumer<byte[], byte[]> consumer =
                new KafkaConsumer<>(config, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            List<TopicPartition> partitions = consumer.partitionsFor(topic).stream()
                .map(info -> new TopicPartition(topic, info.partition()))
                .collect(Collectors.toList());
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            Map<Integer, Long> ends = new TreeMap<>();
            consumer.endOffsets(partitions).forEach((partition, end) -> ends.put(partition.partition(), end));
            out.printf("{\"end_offsets\":%s}%n", new ArrayList<>(ends.values()));
            while (partitions.stream().anyMatch(one -> consumer.position(one) < ends.get(one.partition()))) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(500))) {
                    if (record.offset() < ends.get(record.partition())) {
                        take(record);
                    }
                }
            }
        }
        caches.forEach((partition, cache) -> {
            if (cache != null) {
                store.markInitialized(partition);
            }
        });
    }

    private void take(ConsumerRecord<byte[], byte[]> record) {
        try {
            RemoteLogMetadata event = serde.deserialize(record.value());
            TopicIdPartition partition = event.topicIdPartition();
            if (!caches.containsKey(partition)) {
                caches.put(partition, new RemoteLogMetadataCache());
                store.maybeLoadPartition(partition);
            }
            store.handleRemoteLogMetadata(event);
            RemoteLogMetadataCache cache = caches.get(partition);
            if (event instanceof RemoteLogSegmentMetadata) {
                cache.addCopyInProgressSegment((RemoteLogSegmentMetadata) event);
            } else if (event instanceof RemoteLogSegmentMetadataUpdate) {
                cache.updateRemoteLogSegmentMetadata((RemoteLogSegmentMetadataUpdate) event);
            } else if (((RemotePartitionDeleteMetadata) event).state() == RemotePartitionDeleteState.DELETE_PARTITION_FINISHED) {
                caches.put(partition, null);
            }
        } catch (Exception error) {
            out.printf("{\"ends_the_reading\":[%d,%d,\"%s\"]}%n", record.partition(), record.offset(), name(error));
        }
    }

    private void answer() {
        caches.forEach((partition, cache) -> {
            ask(partition, "list", null, null, () -> segments(store.listRemoteLogSegments(partition)));
            if (cache == null) {
                return;
            }
            TreeSet<Integer> epochs = new TreeSet<>(cache.leaderEpochEntries.keySet());
            ask(partition, "epochs", null, null, epochs::toString);
            // And two that nobody has heard of.
            epochs.add(-1);
            epochs.add(epochs.last() + 1);
            epochs.forEach(epoch -> answer(partition, cache, epoch));
        });
    }

    private void answer(TopicIdPartition partition, RemoteLogMetadataCache cache, int epoch) {
        TreeSet<Long> offsets = new TreeSet<>(List.of(0L, Long.MAX_VALUE));
        cache.idToSegmentMetadata.values().stream()
            .filter(segment -> segment.segmentLeaderEpochs().containsKey(epoch))
            .forEach(segment -> addOffsets(segment, offsets));
        RemoteLogLeaderEpochState state = cache.leaderEpochEntries.get(epoch);
        if (state != null) {
            ask(partition, "referenced", epoch, null, () -> ids(state.referencedSegmentIds()));
            ask(partition, "unreferenced", epoch, null, () -> ids(state.unreferencedSegmentIds()));
        }
        ask(partition, "highest", epoch, null, () -> store.highestLogOffset(partition, epoch).map(String::valueOf).orElse("null"));
        ask(partition, "list_epoch", epoch, null, () -> segments(store.listRemoteLogSegments(partition, epoch)));
        ask(partition, "size", epoch, null, () -> size(store.listRemoteLogSegments(partition, epoch)));
        for (long offset : offsets) {
            ask(partition, "metadata", epoch, offset, () -> id(store.remoteLogSegmentMetadata(partition, offset, epoch)));
            ask(partition, "next_txn", epoch, offset, () -> id(store.nextSegmentWithTxnIndex(partition, epoch, offset)));
        }
    }

    /** Where something begins or ends, right beside that, and in between. */
    private static void addOffsets(RemoteLogSegmentMetadata segment, Collection<Long> offsets) {
        List<Long> edges = new ArrayList<>(segment.segmentLeaderEpochs().values());
        edges.add(segment.startOffset());
        edges.add(segment.endOffset());
        for (long edge : edges) {
            offsets.addAll(List.of(Math.max(edge - 1, 0), edge, edge + 1));
        }
        offsets.add((segment.startOffset() + segment.endOffset()) / 2);
    }

    private interface Answer {
        String get() throws Exception;
    }

    private void ask(TopicIdPartition partition, String question, Integer epoch, Long offset, Answer answer) {
        String told;
        try {
            told = answer.get();
        } catch (Exception error) {
            told = "{\"error\":\"" + name(error) + "\"}";
        }
        out.printf("{\"topic\":\"%s\",\"topic_id\":\"%s\",\"partition\":%d,\"ask\":\"%s\",\"epoch\":%d,\"offset\":%d,\"answer\":%s}%n",
            partition.topic(), partition.topicId(), partition.partition(), question, epoch, offset, told);
    }

    private static String name(Exception error) {
        return error.getClass().getSimpleName();
    }

    private static String id(Optional<RemoteLogSegmentMetadata> segment) {
        return segment.map(found -> '"' + found.remoteLogSegmentId().id().toString() + '"').orElse("null");
    }

    private static String ids(Collection<RemoteLogSegmentId> ids) {
        return ids.stream().map(id -> '"' + id.id().toString() + '"').collect(Collectors.joining(",", "[", "]"));
    }

    private static String size(Iterator<RemoteLogSegmentMetadata> segments) {
        long bytes = 0;
        while (segments.hasNext()) {
            bytes += segments.next().segmentSizeInBytes();
        }
        return String.valueOf(bytes);
    }

    private static String segments(Iterator<RemoteLogSegmentMetadata> segments) {
        List<String> all = new ArrayList<>();
        segments.forEachRemaining(segment -> all.add(described(segment)));
        return all.toString();
    }

    private static String described(RemoteLogSegmentMetadata segment) {
        String epochs = segment.segmentLeaderEpochs().entrySet().stream()
            .map(entry -> "[" + entry.getKey() + "," + entry.getValue() + "]")
            .collect(Collectors.joining(",", "[", "]"));
        String custom = segment.customMetadata().map(metadata -> '"' + hex(metadata.value()) + '"').orElse("null");
        return String.format(Locale.ROOT, "[\"%s\",%d,%d,%d,%d,%d,%s,%d,%s,\"%s\",%b]", segment.remoteLogSegmentId().id(),
            segment.startOffset(), segment.endOffset(), segment.brokerId(), segment.maxTimestampMs(),
            segment.eventTimestampMs(), epochs, segment.segmentSizeInBytes(), custom, segment.state(), segment.isTxnIdxEmpty());
    }

    private static String hex(byte[] bytes) {
        StringBuilder digits = new StringBuilder();
        for (byte one : bytes) {
            digits.append(String.format("%02x", one));
        }
        return digits.toString();
    }
}
