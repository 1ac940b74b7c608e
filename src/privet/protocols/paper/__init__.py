"""The paper's protocol, as the paper describes it."""
