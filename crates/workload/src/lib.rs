//! Seeded workload generators
