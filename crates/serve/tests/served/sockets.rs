use crate::chip::{Chip, SIZE};
use crate::client::*;
use crate::server::{Server, exists, offer, options};
use margay_serve::{Listen, Offer, ServeError};
use std::net::TcpStream;
use std::os::unix::net::UnixListener;
use std::path::Path;

fn disk() -> Vec<Offer> {
    vec![offer("", Chip::new().format())]
}

fn start_at(path: &Path) -> Result<Server, ServeError> {
    Server::start_with(disk(), options(Listen::Unix(path.into())))
}

#[test]
fn the_socket_of_a_dead_server_is_replaced_and_removed_in_the_end() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("nbd.sock");
    drop(UnixListener::bind(&path).unwrap());
    assert!(exists(&path), "a listener that ends leaves its socket behind");
    let server = start_at(&path).unwrap();
    assert_eq!(server.uri, format!("nbd+unix:///?socket={}", path.display()));
    assert_eq!(server.client().call(FLUSH, 0, 0, 0), Ok(()));
    server.stop();
    assert!(!exists(&path));
}

#[test]
fn a_folder_that_something_else_has_locked_is_an_error_after_a_while() {
    let folder = tempfile::tempdir().unwrap();
    let lock = std::fs::File::open(folder.path()).unwrap();
    lock.lock().unwrap();
    let error = start_at(&folder.path().join("nbd.sock")).err().unwrap().to_string();
    assert!(error.contains("is locked by another program"), "{error}");
}

#[test]
fn the_socket_of_a_running_server_is_left_to_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("nbd.sock");
    let server = start_at(&path).unwrap();
    let mut client = server.client();
    let error = start_at(&path).err().unwrap();
    assert!(matches!(error, ServeError::InUse { .. }), "{error}");
    assert!(error.to_string().contains(&path.display().to_string()), "{error}");
    assert!(exists(&path));
    assert_eq!((client.call(FLUSH, 0, 0, 0), server.client().call(FLUSH, 0, 0, 0)), (Ok(()), Ok(())));
    server.stop();
    assert!(!exists(&path));
}

#[test]
fn a_file_that_is_no_socket_is_never_removed() {
    let folder = tempfile::tempdir().unwrap();
    let (path, link) = (folder.path().join("letter.txt"), folder.path().join("link"));
    std::fs::write(&path, "dear reader").unwrap();
    std::os::unix::fs::symlink("nowhere", &link).unwrap();
    for path in [path.as_path(), folder.path(), &link] {
        let error = start_at(path).err().unwrap();
        assert!(matches!(error, ServeError::NotASocket { .. }), "{error}");
        assert!(error.to_string().contains("is not a socket"), "{error}");
        assert!(exists(path));
    }
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "dear reader");
}

#[test]
fn a_file_that_took_the_place_of_the_socket_is_not_removed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("nbd.sock");
    let server = start_at(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    std::fs::write(&path, "mine").unwrap();
    server.stop();
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "mine");
}

#[test]
fn a_path_without_a_folder_is_an_error_that_names_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("missing/nbd.sock");
    let error = start_at(&path).err().unwrap().to_string();
    assert!(error.contains(&path.display().to_string()) && error.contains("No such file"), "{error}");
}

#[test]
fn a_volume_is_stopped_cleanly_if_the_server_cannot_listen() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("letter.txt");
    std::fs::write(&path, "").unwrap();
    let chip = Chip::new();
    let offers = vec![offer("", chip.format())];
    assert!(Server::start_with(offers, options(Listen::Unix(path))).is_err());
    assert!(chip.open(true).mount_report().from_checkpoint);
}

#[test]
fn tcp_serves_on_the_address_in_its_uri_and_a_second_server_cannot_have_it() {
    let server = Server::start_with(disk(), options(Listen::Tcp("127.0.0.1:0".into()))).unwrap();
    let address = server.uri.strip_prefix("nbd://").unwrap().strip_suffix('/').unwrap().to_owned();
    let mut client = Client::greet(TcpStream::connect(&address).unwrap(), 3);
    assert_eq!(client.go("").unwrap().0, SIZE);
    client.write(FUA, 10, b"over TCP").unwrap();
    assert_eq!(client.read(10, 8).unwrap(), b"over TCP");
    let error = Server::start_with(disk(), options(Listen::Tcp(address.clone()))).err().unwrap().to_string();
    assert!(error.contains(&format!("listening on {address}")), "{error}");
    server.stop();
    assert!(client.is_closed());
}

#[test]
fn the_server_ends_with_its_command_which_knows_the_socket() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("nbd.sock");
    let mut options = options(Listen::Unix(path.clone()));
    options.run =
        Some("test -S \"$unixsocket\" && test \"$uri\" = \"nbd+unix:///?socket=$unixsocket\" && exit 3".into());
    let outcome = Server::start_with(disk(), options).unwrap().wait();
    assert_eq!(outcome.command.unwrap().code(), Some(3));
    assert!(!exists(&path));
}
