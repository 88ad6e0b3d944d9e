//! Replay, comparison, forecasts and reproductions on the real engine
