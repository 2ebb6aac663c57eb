"""Prints every record of a topic, then writes some into each partition, with the codec of that partition.

Usage: codecs.py BOOTSTRAP TOPIC RECORDS CODEC...
"""

import sys

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition


def show(bootstrap, topic, count):
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "nobody", "enable.auto.commit": False})
    partitions = [TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in range(count)]
    left = sum(consumer.get_watermark_offsets(partition, timeout=60)[1] for partition in partitions)
    consumer.assign(partitions)
    while left > 0:
        message = consumer.poll(60)
        if message is None or message.error():
            sys.exit(f"{left} records do not come: {message and message.error()}")
        print(message.partition(), message.offset(), message.value().decode())
        left -= 1
    consumer.close()


def write(bootstrap, topic, partition, codec, records):
    def told(error, _):
        if error:
            sys.exit(f"not written: {error}")

    producer = Producer({"bootstrap.servers": bootstrap, "compression.codec": codec, "linger.ms": 50})
    for number in range(records):
        value = f"librdkafka {codec} {number} {'x' * 90}"
        producer.produce(topic, value, partition=partition, on_delivery=told)
    if producer.flush(60):
        sys.exit("records have no answer")


bootstrap, topic, records, *codecs = sys.argv[1:]
show(bootstrap, topic, len(codecs))
for partition, codec in enumerate(codecs):
    write(bootstrap, topic, partition, codec, int(records))
