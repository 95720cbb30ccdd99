//! By what a driver knows the two QEMUs of one migration, and knows them again.
//!
//! A monitor's address may lead to another QEMU than it did before, or than its operator thinks:
//! a path was mistyped, or a supervisor has started the destination anew. What the driver says there
//! (`cont`, `quit`) ends or doubles a guest that it knows nothing of. So it leaves a word in both QEMUs, an
//! object that does nothing, and says neither to a QEMU that does not have it.

use serde_json::{Value, json};

use crate::error::Error;
use crate::handshake;
use crate::qmp::Qmp;

const OBJECT: &str = "pageshare-migration";
/// Beside it in the source, when the guest has arrived: there is nothing left to do.
const ARRIVED: &str = "pageshare-arrived";
/// Beside it in the source, too, with the mark: where the guest has run last, of which only postcopy
/// makes two places before the migration is over.
const RAN: &str = "pageshare-ran";
const HERE: &str = " here";
const THERE: &str = " there";

/// The word, drawn anew for each migration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mark(String);

impl Mark {
    pub(super) fn draw() -> Result<Self, Error> {
        Ok(Self(format!("{:032x}", u128::from_be_bytes(handshake::random()?))))
    }

    /// The one that a QEMU has, if it has one.
    pub(super) fn of(qmp: &mut Qmp) -> Result<Option<Self>, Error> {
        Ok(word(qmp, OBJECT)?.map(Self))
    }

    /// Leaves it in a QEMU, in the place of what an older migration has left.
    pub(super) fn leave_in(&self, qmp: &mut Qmp) -> Result<(), Error> {
        remove(qmp, ARRIVED)?;
        note(qmp, OBJECT, &self.0)
    }

    /// Takes away the one that a QEMU may have, and what goes with it.
    pub(super) fn remove_from(qmp: &mut Qmp) -> Result<(), Error> {
        remove(qmp, OBJECT)?;
        remove(qmp, RAN)
    }

    /// Notes in a source that its guest has run nowhere else yet.
    pub(super) fn note_ran_here(&self, qmp: &mut Qmp) -> Result<(), Error> {
        note(qmp, RAN, &format!("{}{HERE}", self.0))
    }
}

/// Notes in a source that from now on its guest may have run at the destination.
pub(super) fn note_ran_there(qmp: &mut Qmp) -> Result<(), Error> {
    let mark = word(qmp, OBJECT)?.unwrap_or_default();
    note(qmp, RAN, &format!("{mark}{THERE}"))
}

/// Whether the guest of a source may have run at the destination, if this migration noted that.
pub(super) fn may_have_run_there(qmp: &mut Qmp) -> Result<Option<bool>, Error> {
    let mark = word(qmp, OBJECT)?.unwrap_or_default();
    let noted = word(qmp, RAN)?;
    Ok(match noted.as_deref().and_then(|noted| noted.strip_prefix(&mark)) {
        Some(HERE) => Some(false),
        Some(THERE) => Some(true),
        _ => None,
    })
}

/// Notes in a source that its guest has arrived.
pub(super) fn note_arrival(qmp: &mut Qmp) -> Result<(), Error> {
    add(qmp, ARRIVED, "arrived")
}

/// Whether that is noted in a source.
pub(super) fn has_noted_arrival(qmp: &mut Qmp) -> Result<bool, Error> {
    Ok(word(qmp, ARRIVED)?.is_some())
}

/// The word of an object, if there is that object.
fn word(qmp: &mut Qmp, id: &str) -> Result<Option<String>, Error> {
    let place = json!({"path": format!("/objects/{id}"), "property": "identity"});
    match qmp.execute("qom-get", &place) {
        Ok(word) => Ok(word.as_str().map(str::to_owned)),
        Err(Error::Refused(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Puts a word in the place of the one that may be there.
fn note(qmp: &mut Qmp, id: &str, word: &str) -> Result<(), Error> {
    remove(qmp, id)?;
    add(qmp, id, word)
}

fn add(qmp: &mut Qmp, id: &str, word: &str) -> Result<(), Error> {
    let object = json!({"qom-type": "authz-simple", "id": id, "identity": word});
    qmp.execute("object-add", &object).map(drop)
}

fn remove(qmp: &mut Qmp, id: &str) -> Result<(), Error> {
    match qmp.execute("object-del", &json!({"id": id})) {
        Ok(_) | Err(Error::Refused(_)) => Ok(()),
        Err(error) => Err(error),
    }
}

/// By what an operator tells machines apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Machine {
    uuid: Value,
    name: Value,
}

impl Machine {
    pub(super) fn of(qmp: &mut Qmp) -> Result<Self, Error> {
        let uuid = qmp.execute("query-uuid", &json!({}))?["UUID"].take();
        let name = qmp.execute("query-name", &json!({}))?["name"].take();
        Ok(Self { uuid, name })
    }

    /// Refuses a destination that was started for another machine than this one.
    pub(super) fn may_go_to(&self, there: &Self) -> Result<(), Error> {
        let named = !self.name.is_null() && !there.name.is_null();
        let (what, here, there) = if self.uuid != there.uuid {
            ("-uuid", &self.uuid, &there.uuid)
        } else if named && self.name != there.name {
            ("-name", &self.name, &there.name)
        } else {
            return Ok(());
        };
        Err(Error::Refused(format!(
            "the source QEMU's {what} is {here} and the destination's is {there}: the destination \
             awaits another machine, and nothing was done to it. If it is the right one, start it \
             with the source's {what}"
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(uuid: &str, name: Option<&str>) -> Machine {
        Machine { uuid: json!(uuid), name: json!(name) }
    }

    #[test]
    fn a_machine_goes_where_nothing_says_that_another_is_awaited() {
        let web1 = machine("1", Some("web1"));
        assert!(web1.may_go_to(&web1).is_ok());
        assert!(web1.may_go_to(&machine("1", None)).is_ok());
        assert!(machine("1", None).may_go_to(&web1).is_ok());
        for other in [machine("2", Some("web1")), machine("1", Some("web2"))] {
            assert!(web1.may_go_to(&other).is_err(), "{other:?}");
        }
    }
}
