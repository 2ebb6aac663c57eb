import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.stream.Collectors;

import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewPartitionReassignment;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.common.ElectionType;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionInfo;

/**
 * Gives every partition of some topics another leader, so many times.
 *
 * Usage: MoveLeaders BOOTSTRAP ROUNDS TOPIC... In each round the next replica becomes the preferred one, and is elected as
 * soon as it is in sync. In the end all replicas are, so that whoever is killed then leaves one that can lead.
 */
public final class MoveLeaders {
    private MoveLeaders() {
    }

    public static void main(String[] arguments) throws Exception {
        List<String> topics = List.of(arguments).subList(2, arguments.length);
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", arguments[0]))) {
            for (int round = 0; round < Integer.parseInt(arguments[1]); round++) {
                move(admin, topics);
            }
        }
    }

    private static void move(Admin admin, List<String> topics) throws Exception {
        Map<TopicPartition, Integer> moving = new HashMap<>();
        Map<TopicPartition, Optional<NewPartitionReassignment>> orders = new HashMap<>();
        for (TopicDescription topic : describe(admin, topics)) {
            for (TopicPartitionInfo partition : topic.partitions()) {
                TopicPartition name = new TopicPartition(topic.name(), partition.partition());
                List<Integer> order = partition.replicas().stream().map(node -> node.id()).collect(Collectors.toList());
                Collections.rotate(order, -1);
                moving.put(name, order.get(0));
                orders.put(name, Optional.of(new NewPartitionReassignment(order)));
            }
        }
        admin.alterPartitionReassignments(orders).all().get();
        Set<TopicPartition> waiting = new HashSet<>(moving.keySet());
        while (!waiting.isEmpty()) {
            // A partition that has that leader already, or whose replica is not in sync, has an error of its own.
            admin.electLeaders(ElectionType.PREFERRED, waiting).partitions().get();
            Thread.sleep(50);
            for (TopicDescription topic : describe(admin, topics)) {
                for (TopicPartitionInfo partition : topic.partitions()) {
                    TopicPartition name = new TopicPartition(topic.name(), partition.partition());
                    boolean inSync = partition.isr().size() == partition.replicas().size();
                    if (inSync && partition.leader() != null && partition.leader().id() == moving.get(name)) {
                        waiting.remove(name);
                    }
                }
            }
        }
    }

    private static List<TopicDescription> describe(Admin admin, List<String> topics) throws Exception {
        return new ArrayList<>(admin.describeTopics(topics).allTopicNames().get().values());
    }
}
