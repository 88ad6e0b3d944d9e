//! Flash devices: RAM, null, and layers over them
