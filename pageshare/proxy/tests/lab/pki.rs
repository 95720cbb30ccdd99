//! Certificates for both sides.

use std::path::Path;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};

/// Writes a certificate authority and one certificate for each side, as QEMU lays them out.
pub fn certificates(directory: &Path, server: &str, client: &str) {
    certificates_until(4096, directory, server, client);
}

/// As [`certificates`]; the server's lasts until this year.
pub fn certificates_until(year: i32, directory: &Path, server: &str, client: &str) {
    let mut authority = CertificateParams::default();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().expect("randomness");
    let authority = CertifiedIssuer::self_signed(authority, key).expect("a sound certificate");
    let write = |name: &str, text: &str| {
        std::fs::write(directory.join(name), text).expect("writable");
    };
    write("ca-cert.pem", &authority.pem());
    for (side, name) in [("server", server), ("client", client)] {
        let key = KeyPair::generate().expect("randomness");
        let mut parameters = CertificateParams::new([name.to_owned()]).expect("a sound name");
        if side == "server" {
            parameters.not_after = rcgen::date_time_ymd(year, 1, 1);
        }
        let certificate = parameters.signed_by(&key, &authority).expect("a sound certificate");
        write(&format!("{side}-cert.pem"), &certificate.pem());
        write(&format!("{side}-key.pem"), &key.serialize_pem());
    }
}
