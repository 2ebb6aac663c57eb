import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;

import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Prints every record of a topic, then writes some into each partition, with the codec of that partition.
 *
 * Usage: Codecs BOOTSTRAP TOPIC RECORDS CODEC...
 */
public final class Codecs {
    private Codecs() {
    }

    public static void main(String[] arguments) {
        String bootstrap = arguments[0];
        String topic = arguments[1];
        print(bootstrap, topic);
        for (int partition = 0; partition < arguments.length - 3; partition++) {
            write(bootstrap, topic, partition, arguments[partition + 3], Integer.parseInt(arguments[2]));
        }
    }

    private static void print(String bootstrap, String topic) {
        Map<String, Object> config = Map.of("bootstrap.servers", bootstrap, "enable.auto.commit", false);
        try (KafkaConsumer<String, String> consumer =
                new KafkaConsumer<>(config, new StringDeserializer(), new StringDeserializer())) {
            List<TopicPartition> partitions = consumer.partitionsFor(topic).stream()
                .map(info -> new TopicPartition(topic, info.partition()))
                .collect(Collectors.toList());
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            Map<TopicPartition, Long> ends = consumer.endOffsets(partitions);
            while (partitions.stream().anyMatch(one -> consumer.position(one) < ends.get(one))) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(500))) {
                    System.out.println(record.partition() + " " + record.offset() + " " + record.value());
                }
            }
        }
    }

    private static void write(String bootstrap, String topic, int partition, String codec, int records) {
        Map<String, Object> config = Map.of("bootstrap.servers", bootstrap, "compression.type", codec, "linger.ms", 50);
        try (KafkaProducer<String, String> producer =
                new KafkaProducer<>(config, new StringSerializer(), new StringSerializer())) {
            for (int number = 0; number < records; number++) {
                producer.send(new ProducerRecord<>(topic, partition, null, "java " + codec + " " + number + " " + "x".repeat(90)));
            }
        }
    }
}
