mod damage;
mod fixture;
mod memory;
mod sections;
