//! Prints include/margay.h as cbindgen makes it of the sources. scripts/c-library.sh compares the two.

fn main() {
    let library = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let config = cbindgen::Config::from_file(library.join("cbindgen.toml")).expect("cbindgen.toml can be read");
    let sources = ["lib.rs", "arena.rs", "flash.rs"].map(|name| library.join("src").join(name));
    let builder = sources.iter().fold(cbindgen::Builder::new(), |builder, source| builder.with_src(source));
    let bindings = builder.with_config(config).generate().expect("the sources can be read");
    bindings.write(std::io::stdout());
}
