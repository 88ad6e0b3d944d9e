//! Closed forms and mean-field models of cleaning cost
