//! Certificates for both sides.

use std::ops::Range;
use std::path::Path;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rcgen::{ExtendedKeyUsagePurpose as Purpose, date_time_ymd};

/// Writes a certificate authority and one certificate for each side, as QEMU lays them out.
pub fn certificates(directory: &Path, server: &str, client: &str) {
    certificates_between("", 1975..4096, directory, server, client);
}

/// As [`certificates`]; the one of this side is valid in these years.
pub fn certificates_between(
    dated: &str,
    years: Range<i32>,
    directory: &Path,
    server: &str,
    client: &str,
) {
    let mut authority = CertificateParams::default();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().expect("randomness");
    let authority = CertifiedIssuer::self_signed(authority, key).expect("a sound certificate");
    let write = |name: &str, text: &str| {
        std::fs::write(directory.join(name), text).expect("writable");
    };
    write("ca-cert.pem", &authority.pem());
    let sides = [("server", server, Purpose::ServerAuth), ("client", client, Purpose::ClientAuth)];
    for (side, name, purpose) in sides {
        let key = KeyPair::generate().expect("randomness");
        let mut parameters = CertificateParams::new([name.to_owned()]).expect("a sound name");
        parameters.extended_key_usages = vec![purpose];
        if side == dated {
            parameters.not_before = date_time_ymd(years.start, 1, 1);
            parameters.not_after = date_time_ymd(years.end, 1, 1);
        }
        let certificate = parameters.signed_by(&key, &authority).expect("a sound certificate");
        write(&format!("{side}-cert.pem"), &certificate.pem());
        write(&format!("{side}-key.pem"), &key.serialize_pem());
    }
}
