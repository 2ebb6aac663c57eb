//! Private keys on elliptic curves that lack their public half.
//!
//! RFC 5915 leaves it out at will, and Java's keytool does; ring wants it (it holds the two against each other). The
//! certificate has it, so it is put in.

use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};

const INTEGER: u8 = 0x02;
const BIT_STRING: u8 = 0x03;
const OCTET_STRING: u8 = 0x04;
const SEQUENCE: u8 = 0x30;
/// `publicKey` of RFC 5915's `ECPrivateKey`.
const PUBLIC_KEY: u8 = 0xa1;
/// The object identifier `id-ecPublicKey`, with tag and length.
const EC_PUBLIC_KEY: &[u8] = &[0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01];

/// The key with the public half that `certificate` has. Every other key, and one that is whole or not understood, comes back
/// as it was: whoever uses it tells what is wrong with it, and that the two belong together.
pub(super) fn with_public_key(
    key: PrivateKeyDer<'static>,
    certificate: Option<&CertificateDer<'_>>,
) -> PrivateKeyDer<'static> {
    let completed = match (&key, certificate) {
        (PrivateKeyDer::Pkcs8(key), Some(certificate)) => completed(key.secret_pkcs8_der(), certificate),
        _ => None,
    };
    completed.map_or(key, |der| PrivatePkcs8KeyDer::from(der).into())
}

fn completed(pkcs8: &[u8], certificate: &[u8]) -> Option<Vec<u8>> {
    let (info, _) = element(pkcs8, SEQUENCE)?;
    let (version, rest) = element(info, INTEGER)?;
    let (algorithm, rest) = element(rest, SEQUENCE)?;
    let (private, _) = element(rest, OCTET_STRING)?;
    if !algorithm.starts_with(EC_PUBLIC_KEY) {
        return None;
    }
    let (private, _) = element(private, SEQUENCE)?;
    let (one, rest) = element(private, INTEGER)?;
    let (scalar, rest) = element(rest, OCTET_STRING)?;
    // Behind the scalar come the curve and the public key, both optional.
    let rest = element(rest, 0xa0).map_or(rest, |(_, rest)| rest);
    if element(rest, PUBLIC_KEY).is_some() {
        return None;
    }
    let algorithm = der(SEQUENCE, &[algorithm]);
    let point = der(PUBLIC_KEY, &[&der(BIT_STRING, &[public_key(certificate, &algorithm)?])]);
    let private = der(SEQUENCE, &[&der(INTEGER, &[one]), &der(OCTET_STRING, &[scalar]), &point]);
    Some(der(SEQUENCE, &[&der(INTEGER, &[version]), &algorithm, &der(OCTET_STRING, &[&private])]))
}

/// The content of the bit string that stands behind the algorithm: a certificate's `SubjectPublicKeyInfo`.
fn public_key<'c>(certificate: &'c [u8], algorithm: &[u8]) -> Option<&'c [u8]> {
    let at = certificate.windows(algorithm.len()).position(|window| window == algorithm)?;
    Some(element(&certificate[at + algorithm.len()..], BIT_STRING)?.0)
}

/// The content of the DER element at the front, if it has this tag, and what follows it.
fn element(bytes: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (length, start) = match bytes {
        [first, _, ..] if *first != tag => return None,
        [_, length @ 0..=0x7f, ..] => (usize::from(*length), 2),
        [_, 0x81, length, ..] => (usize::from(*length), 3),
        [_, 0x82, high, low, ..] => (usize::from(u16::from_be_bytes([*high, *low])), 4),
        _ => return None,
    };
    let rest = bytes.get(start..)?;
    Some((rest.get(..length)?, rest.get(length..)?))
}

/// A DER element.
fn der(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    let length: usize = parts.iter().map(|part| part.len()).sum();
    let mut out = vec![tag];
    match (u8::try_from(length), u16::try_from(length)) {
        (Ok(length @ 0..=0x7f), _) => out.push(length),
        (Ok(length), _) => out.extend([0x81, length]),
        (_, length) => {
            out.push(0x82);
            // What is put together here comes out of a private key, whose parts are far shorter.
            out.extend(length.unwrap_or(u16::MAX).to_be_bytes());
        }
    }
    parts.iter().for_each(|part| out.extend_from_slice(part));
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::any;
    use proptest::proptest;
    use rcgen::KeyPair;

    use super::*;

    /// A key as keytool has it: without its public half.
    fn bare(pkcs8: &[u8]) -> Vec<u8> {
        let (info, _) = element(pkcs8, SEQUENCE).unwrap();
        let (version, rest) = element(info, INTEGER).unwrap();
        let (algorithm, rest) = element(rest, SEQUENCE).unwrap();
        let (private, _) = element(element(rest, OCTET_STRING).unwrap().0, SEQUENCE).unwrap();
        let (one, rest) = element(private, INTEGER).unwrap();
        let (scalar, rest) = element(rest, OCTET_STRING).unwrap();
        assert!(!rest.is_empty(), "it was whole");
        let private = der(SEQUENCE, &[&der(INTEGER, &[one]), &der(OCTET_STRING, &[scalar])]);
        der(
            SEQUENCE,
            &[&der(INTEGER, &[version]), &der(SEQUENCE, &[algorithm]), &der(OCTET_STRING, &[&private])],
        )
    }

    #[test]
    fn a_key_without_its_public_half_gets_it_from_the_certificate() {
        for algorithm in [&rcgen::PKCS_ECDSA_P256_SHA256, &rcgen::PKCS_ECDSA_P384_SHA384] {
            let pair = KeyPair::generate_for(algorithm).unwrap();
            let params = rcgen::CertificateParams::new(vec!["client".to_owned()]).unwrap();
            let certificate = params.self_signed(&pair).unwrap();
            let provider = rustls::crypto::ring::default_provider().key_provider;
            let bare = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(bare(&pair.serialize_der())));
            assert!(provider.load_private_key(bare.clone_key()).is_err(), "ring does without it now");
            let whole = with_public_key(bare.clone_key(), Some(certificate.der()));
            let loaded = provider.load_private_key(whole).unwrap();
            assert!(loaded.public_key().is_some());
            assert_eq!(with_public_key(bare.clone_key(), None), bare);
        }
        let other = KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(other.serialize_der()));
        let params = rcgen::CertificateParams::new(vec!["client".to_owned()]).unwrap();
        let certificate = params.self_signed(&other).unwrap();
        assert_eq!(with_public_key(key.clone_key(), Some(certificate.der())), key);
    }

    proptest! {
        #[test]
        fn bytes_that_are_no_key_are_left_alone(
            key in proptest::collection::vec(any::<u8>(), 0..200),
            certificate in proptest::collection::vec(any::<u8>(), 0..200),
        ) {
            completed(&key, &certificate);
        }
    }
}
