"""Operations on stores: verify, repair, decode, add a machine."""
