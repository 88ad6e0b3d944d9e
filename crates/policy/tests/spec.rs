//! Policies as text.

use margay_policy::spec::{ParameterKind, PolicyKind};
use margay_policy::{AllocatorSpec, LevelingSpec, PlacementSpec, SelectionSpec, Sizing, Spec};

fn prints_as_what_reads_as_the_same<K: PolicyKind>(specs: impl Iterator<Item = Spec<K>>) {
    for spec in specs {
        let again: Spec<K> = spec.to_string().parse().unwrap();
        assert!(again == spec, "{spec}");
        assert!(spec.name().parse::<Spec<K>>().unwrap() == spec, "{spec}: the name alone means the defaults");
        for parameter in spec.row().parameters {
            if let ParameterKind::Choice(names) = parameter.kind {
                for name in names {
                    let text = format!("{}:{}={name}", spec.name(), parameter.key);
                    let chosen: Spec<K> = text.parse().unwrap();
                    assert!(chosen.to_string().parse::<Spec<K>>().unwrap() == chosen, "{text}");
                }
            }
            if let ParameterKind::Presets(presets) = parameter.kind {
                for preset in presets {
                    let named: Spec<K> = format!("{}:preset={}", spec.name(), preset.name).parse().unwrap();
                    let meant: Spec<K> = format!("{}:{}", spec.name(), preset.values).parse().unwrap();
                    assert!(named == meant && named != spec, "{named}");
                    assert!(named.to_string().parse::<Spec<K>>().unwrap() == named, "{named}");
                }
            }
            assert!(parameter.describe().contains("(default)"), "{}: {}", spec, parameter.key);
        }
    }
}

#[test]
fn every_policy_is_read_printed_and_built() {
    prints_as_what_reads_as_the_same(SelectionSpec::all());
    prints_as_what_reads_as_the_same(PlacementSpec::all());
    prints_as_what_reads_as_the_same(LevelingSpec::all());
    prints_as_what_reads_as_the_same(AllocatorSpec::all());
    let sizing = Sizing { segments: 8, data_pages: 4, exported_pages: 20, seed: 1 };
    SelectionSpec::all().for_each(|spec| drop(spec.build(sizing)));
    LevelingSpec::all().for_each(|spec| drop(spec.build(8)));
    for streams in
        PlacementSpec::all().map(|spec| spec.streams()).chain(AllocatorSpec::all().map(|spec| spec.streams()))
    {
        assert!(streams > 0);
    }
}

#[test]
fn a_preset_stands_for_its_values_and_keys_beside_it_replace_them() {
    let read = |text: &str| text.parse::<SelectionSpec>().unwrap().to_string();
    assert_eq!(read("cost-benefit"), "cost-benefit:shape=linear,scale=0.00775d");
    assert_eq!(read("cost-benefit:preset=fms"), "cost-benefit:shape=log,scale=0.00775d");
    assert_eq!(read("cat:preset=fms,scale=1000s"), "cat:shape=log,scale=1000s");
    assert_eq!(read("cat:scale=1000s,preset=fms"), "cat:shape=log,scale=1000s");
    let error = "cat:preset=fma".parse::<SelectionSpec>().unwrap_err().to_string();
    assert_eq!(error, "preset=fma: expected one of fms");
    let variants: Vec<_> = SelectionSpec::variants().map(|spec| spec.to_string()).collect();
    assert!(variants.contains(&read("cost-benefit:preset=recent")), "{variants:?}");
    // A comparison of all policies with their variants stays quick.
    assert!(SelectionSpec::variants().count() <= 4 && PlacementSpec::variants().count() <= 6);
}

#[test]
fn parameters_are_read() {
    let text = "cost-benefit:age=invalidated,shape=linear,scale=1000s";
    assert_eq!(text.parse::<SelectionSpec>().unwrap().to_string(), text);
    assert_eq!("greedy:tie=index".parse::<SelectionSpec>().unwrap().to_string(), "greedy");
    assert_eq!("m6".parse::<PlacementSpec>().unwrap().to_string(), "m6:mean=decay,scale=0.67d");
    assert_eq!("dac:regions=7".parse::<PlacementSpec>().unwrap().streams(), 7);
    assert_eq!(" moda : m = 3".parse::<AllocatorSpec>().unwrap().to_string(), "moda:m=3,lifetime=100");
}

#[test]
fn a_file_system_takes_its_own_allocators_and_every_placement() {
    assert_eq!("dac".parse::<AllocatorSpec>().unwrap().to_string(), "dac", "the one without parameters");
    assert_eq!("m6".parse::<AllocatorSpec>().unwrap().to_string(), "m6:mean=decay,scale=0.67d");
    assert!(AllocatorSpec::made_for_files().any(|spec| spec.name() == "predictive"));
    assert!(AllocatorSpec::made_for_files().all(|spec| spec.name() != "m6"));
}

#[test]
fn errors_name_what_is_wrong_and_what_would_be_right() {
    let message = |text: &str| text.parse::<SelectionSpec>().unwrap_err().to_string();
    let known: Vec<_> = SelectionSpec::all().map(|spec| spec.name()).collect();
    let unknown = format!("unknown selection policy 'gredy'; the known ones are {}", known.join(", "));
    assert_eq!(message("gredy"), unknown);
    assert!(unknown.contains("greedy, cost-benefit, cat"), "{unknown}");
    assert_eq!(message("greedy:tie=newest"), "tie=newest: expected one of index, oldest");
    assert_eq!(message("greedy:d=3"), "'greedy' has no parameter 'd'; it has tie");
    assert_eq!(message("fifo:d=3"), "'fifo' has no parameter 'd'; it has none");
    assert_eq!(message("d-choices:d=0"), "d=0: expected a whole number from 1 to 100000");
    assert_eq!(message("d-choices:d=2,d=3"), "'d' is given twice in 'd-choices:d=2,d=3'");
    assert_eq!(message("windowed-greedy:window=1.5"), "window=1.5: expected a share, over 0 and at most 1");
    assert!(message("windowed-greedy:window=NaN").contains("a share"));
    assert!(message("cat:scale=5").contains("a positive span"));
    assert!(message("cat:scale=-5s").contains("a positive span"));
    assert!(message("cat:scale").contains("key=value"));
}

#[test]
fn the_usual_policies_of_a_comparison_are_in_the_tables() {
    fn check<K: PolicyKind>(_: Spec<K>) {
        let is_there = |name: &&str| Spec::<K>::usual().any(|spec| spec.name() == *name);
        assert!(!K::USUAL.is_empty() && K::USUAL.iter().all(is_there), "{:?}", K::USUAL);
    }
    check(SelectionSpec::known("greedy"));
    check(PlacementSpec::known("m1"));
}
