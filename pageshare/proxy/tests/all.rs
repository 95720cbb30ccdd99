//! All tests of the whole, as one program: it is linked once, and boots each of its guests once.

mod lab;

mod adaptive_policy;
mod any_bytes;
mod arriving_guests;
mod closed_channels;
mod content_sources;
mod distance;
mod full_disks;
mod golden_streams;
mod hangups;
mod hostile_receivers;
mod index_command;
mod kept_copies;
mod ksm;
mod last_words;
mod libvirt;
mod migrate_command;
mod migrate_postcopy;
mod migrate_resume;
mod migrate_through_proxies;
mod plain_errors;
mod plan_command;
mod qcow2_images;
mod return_trip;
mod secrets;
mod selectors;
mod slow_copies;
mod strays;
mod supplies;
mod systemd_units;
mod tls;
mod unknown_flags;
mod whole_streams;
mod wire_versions;
