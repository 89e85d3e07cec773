"""The order in which admission handlers are asked."""

from msgspec import Struct

from klet.admission.predicate_check import PredicateCheck
from klet.model.verdicts import AdmitHandler


class AdmissionChain(Struct, frozen=True, kw_only=True):
    """The handlers, in upstream's order. Only those of `managers` may give a pod something; all others look."""

    before: tuple[AdmitHandler, ...] = ()
    """Eviction, then kernel parameters."""
    managers: tuple[AdmitHandler, ...] = ()
    """Those that give containers their CPUs, memory and devices (topology manager)."""
    predicates: PredicateCheck
    after: tuple[AdmitHandler, ...] = ()
    """AppArmor, gated fields, declared features, then the shutdown of the node."""

    @property
    def handlers(self) -> tuple[AdmitHandler, ...]:
        return (*self.before, *self.managers, self.predicates, *self.after)
