"""What a request passes through: the gate, the handler of bodies and responses, the errors."""
