//! The contract with a flash chip: geometry, addresses, the Flash trait
