//! The programs of the README are those of `examples/`, which the documentation of the crate shows and runs.

#[test]
fn the_readme_shows_the_examples_as_they_are() {
    let readme = include_str!("../README.md");
    for (name, text) in [("disk", include_str!("../examples/disk.rs")), ("files", include_str!("../examples/files.rs"))]
    {
        let shown = readme.contains(&format!("```rust\n{text}```\n"));
        assert!(shown, "crates/volume/README.md does not show examples/{name}.rs as it is: copy it there again");
    }
}
