//! A certificate as a person reads it.

use std::net::IpAddr;

use x509_cert::Certificate;
use x509_cert::der::Decode as _;
use x509_cert::ext::pkix::SubjectAltName;
use x509_cert::ext::pkix::name::GeneralName;

/// Longest list of names that is shown.
const NAMES_MAX: usize = 8;

/// What a listener's certificate says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Shown {
    /// Whose it is, `CN=broker1,O=Example`.
    pub(super) subject: String,
    /// Who signed it.
    pub(super) issuer: String,
    /// The host names and addresses that it is for.
    pub(super) names: Vec<String>,
    /// From when it is good, in milliseconds since 1970.
    pub(super) not_before_ms: i64,
    /// Until when.
    pub(super) not_after_ms: i64,
}

/// Reads a certificate; `None` where the bytes are none that can be read.
pub(super) fn read(der: &[u8]) -> Option<Shown> {
    let certificate = Certificate::from_der(der).ok()?;
    let signed = certificate.tbs_certificate();
    let millis =
        |time: x509_cert::time::Time| i64::try_from(time.to_unix_duration().as_millis()).unwrap_or(i64::MAX);
    let names = match signed.get_extension::<SubjectAltName>() {
        Ok(Some((_, names))) => names.0.iter().filter_map(name).take(NAMES_MAX + 1).collect(),
        Ok(None) | Err(_) => Vec::new(),
    };
    Some(Shown {
        subject: signed.subject().to_string(),
        issuer: signed.issuer().to_string(),
        names,
        not_before_ms: millis(signed.validity().not_before),
        not_after_ms: millis(signed.validity().not_after),
    })
}

fn name(name: &GeneralName) -> Option<String> {
    match name {
        GeneralName::DnsName(name) => Some(name.to_string()),
        GeneralName::IpAddress(bytes) => {
            let bytes = bytes.as_bytes();
            let four = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
            let address = four.or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from)).ok()?;
            Some(address.to_string())
        }
        _ => None,
    }
}

impl Shown {
    /// `localhost, 127.0.0.1`, or that there are none.
    pub(super) fn names(&self) -> String {
        match self.names.len() {
            0 => "no host".to_owned(),
            count if count > NAMES_MAX => format!("{}, …", self.names[..NAMES_MAX].join(", ")),
            _ => self.names.join(", "),
        }
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DnType, KeyPair};

    use super::*;

    fn certificate(names: &[&str]) -> Vec<u8> {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        params.distinguished_name.push(DnType::CommonName, "broker1");
        (params.not_before, params.not_after) =
            (rcgen::date_time_ymd(2024, 1, 1), rcgen::date_time_ymd(2025, 1, 1));
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().to_vec()
    }

    #[test]
    fn subject_names_and_dates_are_read() {
        let shown = read(&certificate(&["broker1.example.com", "127.0.0.1", "::1"])).unwrap();
        assert_eq!(shown.subject, "CN=broker1");
        assert_eq!(shown.names(), "broker1.example.com, 127.0.0.1, ::1");
        assert_eq!((shown.not_before_ms, shown.not_after_ms), (1_704_067_200_000, 1_735_689_600_000));
        assert_eq!(read(&certificate(&[])).unwrap().names(), "no host");
        let many: Vec<String> = (0..20).map(|number| format!("broker{number}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert!(read(&certificate(&many)).unwrap().names().ends_with("broker7, …"));
    }

    #[test]
    fn bytes_that_are_no_certificate_are_none() {
        let good = certificate(&["a"]);
        for end in 0..good.len() {
            assert_eq!(read(&good[..end]), None);
        }
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 0xff;
            // Whatever comes of it, it is an answer.
            let _ = read(&bad);
        }
    }
}
