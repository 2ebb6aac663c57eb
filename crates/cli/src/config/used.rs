//! Which settings are in force, each with its origin, fit to be shown.

use super::Settings;
use super::keys::{KEYS, Use};

/// A setting in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UsedSetting {
    /// Kafka's name.
    pub(crate) name: &'static str,
    /// The value, or that it is not shown.
    pub(crate) value: String,
    /// Where it stands, or that it is the default.
    pub(crate) origin: String,
}

/// The settings whose values are shown. A key that does not stand here may be a secret, or hold one.
const SHOWN: [&str; 14] = [
    "bootstrap.servers",
    "client.id",
    "security.protocol",
    "request.timeout.ms",
    "socket.connection.setup.timeout.ms",
    "sasl.mechanism",
    "sasl.username",
    "ssl.truststore.type",
    "ssl.truststore.location",
    "ssl.keystore.type",
    "ssl.keystore.location",
    "ssl.certificate.location",
    "ssl.key.location",
    "ssl.endpoint.identification.algorithm",
];

/// What is in force where nobody says anything, of the settings that always matter.
const DEFAULTS: [(&str, &str); 3] = [
    ("security.protocol", "PLAINTEXT"),
    ("request.timeout.ms", "30000"),
    ("socket.connection.setup.timeout.ms", "10000"),
];

impl Settings {
    /// Every setting in force, in the order of the table of keys.
    pub(crate) fn used(&self) -> Vec<UsedSetting> {
        let heard = KEYS.iter().filter(|key| key.used == Use::Heard);
        heard.filter_map(|key| self.used_setting(key.name)).collect()
    }

    fn used_setting(&self, name: &'static str) -> Option<UsedSetting> {
        if let Some(setting) = self.values.get(name).filter(|setting| !setting.value.trim().is_empty()) {
            let shown = SHOWN.contains(&name) && !setting.value.contains('@');
            let value = if shown { setting.value.trim().to_owned() } else { "(not shown)".to_owned() };
            return Some(UsedSetting { name, value, origin: setting.origin.to_string() });
        }
        let (_, value) = DEFAULTS.iter().find(|(key, _)| *key == name)?;
        Some(UsedSetting { name, value: (*value).to_owned(), origin: "the default".to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::super::Given;
    use super::*;

    #[test]
    fn every_setting_comes_with_its_origin_and_no_secret_is_shown() {
        let pairs = [
            "sasl.password=c0rrect",
            "sasl.jaas.config=org.apache.kafka.X required password=\"c0rrect\";",
            "ssl.keystore.key=-----BEGIN c0rrect-----",
            "ssl.key.password=c0rrect",
            "sasl.username=ada",
            "bootstrap.servers=user:c0rrect@broker:1",
        ];
        let x = pairs.map(str::to_owned);
        let environment = vec![("STRANDLINE_X_SSL_CA_LOCATION".to_owned(), "/etc/ca.pem".to_owned())];
        let settings = Settings::collect(&Given { x: &x, environment, ..Given::default() }).unwrap();
        let lines: Vec<String> = settings
            .used()
            .iter()
            .map(|used| format!("{}={} ({})", used.name, used.value, used.origin))
            .collect();
        assert_eq!(
            lines,
            [
                "bootstrap.servers=(not shown) (-X bootstrap.servers)",
                "security.protocol=PLAINTEXT (the default)",
                "request.timeout.ms=30000 (the default)",
                "socket.connection.setup.timeout.ms=10000 (the default)",
                "sasl.jaas.config=(not shown) (-X sasl.jaas.config)",
                "sasl.username=ada (-X sasl.username)",
                "sasl.password=(not shown) (-X sasl.password)",
                "ssl.truststore.location=/etc/ca.pem ($STRANDLINE_X_SSL_CA_LOCATION)",
                "ssl.keystore.key=(not shown) (-X ssl.keystore.key)",
                "ssl.key.password=(not shown) (-X ssl.key.password)",
            ]
        );
    }

    #[test]
    fn the_defaults_told_are_those_in_force() {
        let given = Given { bootstrap: Some("broker:1"), ..Given::default() };
        let client = Settings::collect(&given).unwrap().client().unwrap();
        let told = |key| DEFAULTS.iter().find(|(name, _)| *name == key).map(|(_, value)| (*value).to_owned());
        let millis = |time: std::time::Duration| Some(time.as_millis().to_string());
        assert_eq!(told("request.timeout.ms"), millis(client.request_timeout));
        assert_eq!(told("socket.connection.setup.timeout.ms"), millis(client.connection.connect_timeout));
        assert!(matches!(client.connection.security, strandline_conn::Security::Plaintext));
    }

    #[test]
    fn what_is_shown_is_a_key_of_the_table() {
        for name in SHOWN {
            assert!(KEYS.iter().any(|key| key.name == name && key.used == Use::Heard), "{name}");
        }
    }
}
