//! Every configuration key that is known, once: Kafka's name, librdkafka's name, and what becomes of it.

/// What becomes of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    /// It is heard.
    Heard,
    /// It means nothing to a command that only reads; noted at `-v`.
    Ignored,
    /// It asks for something that is not supported: any value but the one given here ends the command with exit 7.
    UnsupportedUnless(&'static str),
}

/// A row of the table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Key {
    /// The name in Java's `client.properties`; a key that only librdkafka has stands under its own name.
    pub(crate) name: &'static str,
    /// The names that mean the same elsewhere.
    pub(crate) aliases: &'static [&'static str],
    /// What becomes of it.
    pub(crate) used: Use,
}

macro_rules! keys {
    ($($name:literal $([$($alias:literal)*])? => $used:expr;)*) => {
        /// The table.
        pub(crate) const KEYS: &[Key] = &[$(Key { name: $name, aliases: &[$($($alias,)*)?], used: $used },)*];
    };
}

use Use::{Heard, Ignored, UnsupportedUnless};

keys! { // Kafka's name, [librdkafka's names], use
    "bootstrap.servers" ["metadata.broker.list"] => Heard;
    "client.id" => Heard;
    "security.protocol" => Heard;
    "request.timeout.ms" ["socket.timeout.ms"] => Heard;
    "socket.connection.setup.timeout.ms" => Heard;
    "connections.max.idle.ms" => Heard;

    "sasl.mechanism" ["sasl.mechanisms"] => Heard;
    "sasl.jaas.config" => Heard;
    "sasl.username" => Heard;
    "sasl.password" => Heard;
    "sasl.login.callback.handler.class" => Heard;
    "sasl.oauthbearer.token.command" => Heard; // strandline's own
    "sasl.oauthbearer.token.endpoint.url" => Heard;
    "sasl.oauthbearer.client.credentials.client.id" ["sasl.oauthbearer.client.id"] => Heard;
    "sasl.oauthbearer.client.credentials.client.secret" ["sasl.oauthbearer.client.secret"] => Heard;
    "sasl.oauthbearer.scope" => Heard;
    "sasl.oauthbearer.extensions" => Heard;
    "sasl.oauthbearer.header.urlencode" => Heard;
    "sasl.oauthbearer.method" => Heard;
    "sasl.oauthbearer.jwt.retriever.class" => Heard;
    "sasl.oauthbearer.grant.type" => UnsupportedUnless("client_credentials");
    "https.ca.location" => Heard;
    "https.ca.pem" => Heard;

    "ssl.truststore.type" => Heard;
    "ssl.truststore.location" ["ssl.ca.location"] => Heard;
    "ssl.truststore.certificates" ["ssl.ca.pem"] => Heard;
    "ssl.truststore.password" => Heard;
    "ssl.keystore.type" => Heard;
    "ssl.keystore.location" => Heard;
    "ssl.keystore.certificate.chain" ["ssl.certificate.pem"] => Heard;
    "ssl.keystore.key" ["ssl.key.pem"] => Heard;
    "ssl.certificate.location" => Heard;
    "ssl.key.location" => Heard;
    "ssl.key.password" => Heard;
    "ssl.keystore.password" => Heard;
    "ssl.endpoint.identification.algorithm" => Heard;
    "enable.ssl.certificate.verification" => UnsupportedUnless("true");
    "ssl.engine.factory.class" => UnsupportedUnless("");
    "ssl.provider" => Ignored;
    "ssl.protocol" => Ignored;
    "ssl.enabled.protocols" => Ignored;
    "ssl.cipher.suites" => Ignored;
    "ssl.keymanager.algorithm" => Ignored;
    "ssl.trustmanager.algorithm" => Ignored;
    "ssl.secure.random.implementation" => Ignored;
    "ssl.curves.list" => Ignored;
    "ssl.sigalgs.list" => Ignored;
    "ssl.crl.location" => UnsupportedUnless("");

    "socks.proxy" => UnsupportedUnless("");
    "sasl.client.callback.handler.class" => UnsupportedUnless("");
    "sasl.login.class" => UnsupportedUnless("");
    "sasl.kerberos.service.name" => Ignored;
    "sasl.kerberos.kinit.cmd" => Ignored;
    "sasl.kerberos.min.time.before.relogin" => Ignored;
    "sasl.kerberos.ticket.renew.jitter" => Ignored;
    "sasl.kerberos.ticket.renew.window.factor" => Ignored;
    "sasl.kerberos.keytab" => Ignored;
    "sasl.kerberos.principal" => Ignored;
    "sasl.login.refresh.buffer.seconds" => Ignored;
    "sasl.login.refresh.min.period.seconds" => Ignored;
    "sasl.login.refresh.window.factor" => Ignored;
    "sasl.login.refresh.window.jitter" => Ignored;

    // What a client that only reads has no use for.
    "acks" ["request.required.acks"] => Ignored;
    "allow.auto.create.topics" => Ignored;
    "api.version.request" => Ignored;
    "auto.commit.interval.ms" => Ignored;
    "auto.offset.reset" => Ignored;
    "batch.size" => Ignored;
    "broker.address.family" => Ignored;
    "broker.address.ttl" => Ignored;
    "buffer.memory" => Ignored;
    "check.crcs" => Ignored;
    "client.dns.lookup" => Ignored;
    "client.rack" => Ignored;
    "compression.type" ["compression.codec"] => Ignored;
    "debug" => Ignored;
    "default.api.timeout.ms" => Ignored;
    "delivery.timeout.ms" => Ignored;
    "enable.auto.commit" => Ignored;
    "enable.auto.offset.store" => Ignored;
    "enable.idempotence" => Ignored;
    "enable.metrics.push" => Ignored;
    "enable.partition.eof" => Ignored;
    "exclude.internal.topics" => Ignored;
    "fetch.max.bytes" => Ignored;
    "fetch.max.wait.ms" ["fetch.wait.max.ms"] => Ignored;
    "fetch.min.bytes" => Ignored;
    "group.id" => Ignored;
    "group.instance.id" => Ignored;
    "group.protocol" => Ignored;
    "heartbeat.interval.ms" => Ignored;
    "interceptor.classes" => Ignored;
    "isolation.level" => Ignored;
    "key.deserializer" => Ignored;
    "key.serializer" => Ignored;
    "linger.ms" ["queue.buffering.max.ms"] => Ignored;
    "log.connection.close" => Ignored;
    "max.block.ms" => Ignored;
    "max.in.flight.requests.per.connection" ["max.in.flight"] => Ignored;
    "max.partition.fetch.bytes" ["fetch.message.max.bytes"] => Ignored;
    "max.poll.interval.ms" => Ignored;
    "max.poll.records" => Ignored;
    "max.request.size" ["message.max.bytes"] => Ignored;
    "metadata.max.age.ms" ["topic.metadata.refresh.interval.ms"] => Ignored;
    "metadata.max.idle.ms" => Ignored;
    "metadata.recovery.strategy" => Ignored;
    "metadata.recovery.rebootstrap.trigger.ms" => Ignored;
    "metric.reporters" => Ignored;
    "metrics.num.samples" => Ignored;
    "metrics.recording.level" => Ignored;
    "metrics.sample.window.ms" => Ignored;
    "partition.assignment.strategy" => Ignored;
    "partitioner.class" => Ignored;
    "receive.buffer.bytes" ["socket.receive.buffer.bytes"] => Ignored;
    "receive.message.max.bytes" => Ignored;
    "reconnect.backoff.max.ms" => Ignored;
    "reconnect.backoff.ms" => Ignored;
    "retries" ["message.send.max.retries"] => Ignored;
    "retry.backoff.max.ms" => Ignored;
    "retry.backoff.ms" => Ignored;
    "security.providers" => Ignored;
    "send.buffer.bytes" ["socket.send.buffer.bytes"] => Ignored;
    "session.timeout.ms" => Ignored;
    "socket.connection.setup.timeout.max.ms" => Ignored;
    "socket.keepalive.enable" => Ignored;
    "socket.nagle.disable" => Ignored;
    "statistics.interval.ms" => Ignored;
    "transaction.timeout.ms" => Ignored;
    "transactional.id" => Ignored;
    "value.deserializer" => Ignored;
    "value.serializer" => Ignored;
}

/// The row of a key, by any of its names; `None` for an unknown key.
pub(crate) fn look_up(name: &str) -> Option<&'static Key> {
    KEYS.iter().find(|key| key.name == name || key.aliases.contains(&name)).or_else(|| {
        // Families of keys of which a read of Kafka has no use: how brokers check tokens, schema registries.
        let foreign = ["sasl.oauthbearer.", "schema.registry.", "basic.auth."];
        const FOREIGN: Key = Key { name: "sasl.oauthbearer.*", aliases: &[], used: Ignored };
        foreign.iter().any(|prefix| name.starts_with(prefix)).then_some(&FOREIGN)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_stands_twice_in_the_table() {
        let mut names: Vec<&str> =
            KEYS.iter().flat_map(|key| std::iter::once(&key.name).chain(key.aliases)).copied().collect();
        names.sort_unstable();
        let twice: Vec<_> = names.windows(2).filter(|pair| pair[0] == pair[1]).collect();
        assert!(twice.is_empty(), "{twice:?}");
    }

    #[test]
    fn both_dialects_lead_to_one_row() {
        for (java, librdkafka) in [
            ("bootstrap.servers", "metadata.broker.list"),
            ("sasl.mechanism", "sasl.mechanisms"),
            ("ssl.truststore.location", "ssl.ca.location"),
            ("ssl.keystore.key", "ssl.key.pem"),
            ("sasl.oauthbearer.client.credentials.client.id", "sasl.oauthbearer.client.id"),
        ] {
            assert_eq!(look_up(java).unwrap().name, look_up(librdkafka).unwrap().name);
        }
        assert!(look_up("no.such.key").is_none());
    }
}
