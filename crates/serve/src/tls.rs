use crate::ServeError;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use std::path::Path;
use std::sync::Arc;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig};

/// Reads certificate and key from a folder, and the authority of client certificates if they are to be verified. The
/// names of the files are those of other NBD servers and QEMU: server-cert.pem, server-key.pem, ca-cert.pem.
pub(crate) fn acceptor(folder: &Path, verify_clients: bool) -> Result<TlsAcceptor, ServeError> {
    let failed = |file: &str, error: &dyn std::fmt::Display| ServeError::Tls {
        file: folder.join(file).display().to_string(),
        error: error.to_string(),
    };
    let certificates = |file: &str| -> Result<Vec<CertificateDer<'static>>, ServeError> {
        let read = CertificateDer::pem_file_iter(folder.join(file)).and_then(Iterator::collect);
        read.map_err(|error| failed(file, &error))
    };
    let chain = certificates("server-cert.pem")?;
    let key = PrivateKeyDer::from_pem_file(folder.join("server-key.pem"))
        .map_err(|error| failed("server-key.pem", &error))?;
    let builder = ServerConfig::builder();
    let builder = if verify_clients {
        let mut roots = RootCertStore::empty();
        for certificate in certificates("ca-cert.pem")? {
            roots.add(certificate).map_err(|error| failed("ca-cert.pem", &error))?;
        }
        let verifier = WebPkiClientVerifier::builder(Arc::new(roots)).build();
        builder.with_client_cert_verifier(verifier.map_err(|error| failed("ca-cert.pem", &error))?)
    } else {
        builder.with_no_client_auth()
    };
    let config = builder.with_single_cert(chain, key).map_err(|error| failed("server-cert.pem", &error))?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}
