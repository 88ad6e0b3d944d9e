//! Cleaning policies: selection, placement, leveling, and their registry
